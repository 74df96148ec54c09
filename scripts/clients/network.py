"""A network for one run: a bridge with the tracker's addresses, and a namespace per client.

The run has network, mount and process namespaces of its own: the host's network stays as it is, runs cannot interfere
with each other, and the kernel removes links, processes and files at the end of the run. Root is not needed where user
namespaces are allowed.
"""

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

from processes import Failure

# A tmpfs of the mount namespace.
SCRATCH = Path("/run")
TRACKER_V4 = "10.77.0.1"
TRACKER_V6 = "fd77::1"
# Set in the process that runs in the namespaces.
INSIDE = "ONRUSH_CLIENTS_INSIDE"


def run_isolated(main):
    """Runs this script again in new namespaces, where it runs `main()`; returns its exit code."""
    if INSIDE not in os.environ:
        root = [] if os.geteuid() == 0 else ["--map-root-user"]
        isolated = ["unshare", *root, "--net", "--mount", "--pid", "--mount-proc", "--fork", "--kill-child"]
        # The kernel ends them with this process.
        command = ["setpriv", "--pdeathsig", "KILL", "--", *isolated, sys.executable, *sys.argv]
        child = subprocess.Popen(command, env=dict(os.environ, **{INSIDE: "1"}))
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, lambda *_: child.kill())
        return child.wait() % 256
    # Process 1 of the namespace: the kernel kills all others when it exits. Signals without a handler do not end it.
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda number, _: sys.exit(128 + number))
    _run("mount -t tmpfs tmpfs /run".split())
    os.mkdir("/run/netns")
    return main()


def _run(command, **options):
    done = subprocess.run(command, capture_output=True, text=True, **options)
    if done.returncode != 0:
        raise Failure(f"{' '.join(command)}: {done.stderr.strip() or done.stdout.strip()}")


def _ip(*commands):
    _run(["ip", "-batch", "-"], input="\n".join(commands) + "\n")


def _join(name, *addresses, last=()):
    """A new namespace with these addresses at a device on the bridge, by commands of ip(8)."""
    _ip(f"netns add {name}", f"link add {name} type veth peer name eth0 netns {name}", f"link set {name} master br0 up")
    commands = ("link set lo up", *addresses, "link set eth0 up", *last)
    _run(["ip", "-n", name, "-batch", "-"], input="\n".join(commands) + "\n")


class Network:
    """The bridge, with the tracker's addresses; hosts join by `host`. Where the tracker is `apart`, it is a host with
    these addresses, and the bridge has others."""

    def __init__(self, apart=False):
        self._hosts = 0
        self._lock = threading.Lock()
        v4, v6 = ("10.77.0.2", "fd77::2") if apart else (TRACKER_V4, TRACKER_V6)
        _ip(
            "link set lo up",
            "link add br0 type bridge stp_state 0 forward_delay 0",
            f"addr add {v4}/16 dev br0",
            # Without duplicate address detection, the address is usable at once.
            f"addr add {v6}/64 dev br0 nodad",
            "link set br0 up",
        )
        if apart:
            _join("tracker", f"addr add {TRACKER_V4}/16 dev eth0", f"addr add {TRACKER_V6}/64 dev eth0 nodad")
        self.tracker = Host("tracker", TRACKER_V4, "both") if apart else None

    def host(self, family):
        """A new namespace with one address of family "ipv4" or "ipv6" only."""
        with self._lock:
            self._hosts += 1
            number = self._hosts
        assert number < 250
        name = f"host{number}"
        if family == "ipv4":
            address, length, gateway = f"10.77.1.{number}", 16, TRACKER_V4
        else:
            address, length, gateway = f"fd77::1:{number:x}", 64, TRACKER_V6
        nodad = " nodad" if family == "ipv6" else ""
        _join(name, f"addr add {address}/{length} dev eth0{nodad}", last=[f"route add default via {gateway}"])
        return Host(name, address, family)


class Host:
    """A namespace with one address."""

    def __init__(self, name, address, family):
        self.name, self.address, self.family = name, address, family

    def command(self, *arguments):
        """The command line that runs `arguments` in the namespace."""
        return ["ip", "netns", "exec", self.name, *map(str, arguments)]

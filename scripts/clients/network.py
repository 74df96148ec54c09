"""A network for one run: a bridge with the tracker's addresses, and a namespace per client.

The run has network, mount and process namespaces of its own: the host's network stays as it is, runs cannot interfere
with each other, and the kernel removes links, processes and files at the end of the run. Root is not needed where user
namespaces are allowed.
"""

import ctypes
import os
import signal
import subprocess
import sys
import threading
import traceback
from pathlib import Path

from places import Failure

# A tmpfs of the mount namespace.
SCRATCH = Path("/run")
TRACKER_V4 = "10.77.0.1"
TRACKER_V6 = "fd77::1"

_CLONE_NEWNS, _CLONE_NEWUSER, _CLONE_NEWPID, _CLONE_NEWNET = 0x20000, 0x10000000, 0x20000000, 0x40000000
_PR_SET_PDEATHSIG = 1


def run_isolated(main):
    """Runs `main()` in new namespaces; returns its exit code.

    Where user namespaces are forbidden and sudo needs no password, the script starts again as root.
    """
    probe = "unshare --user --map-root-user --net --mount --pid --fork mount -t tmpfs tmpfs /run"
    if os.geteuid() != 0 and not _succeeds(probe):
        if _succeeds("sudo -n true"):
            kept = [f"{name}={os.environ[name]}" for name in ("ONRUSH_BIN", "CARGO_TARGET_DIR") if name in os.environ]
            os.execvp("sudo", ["sudo", "-n", "env", *kept, sys.executable, *sys.argv])
        raise Failure("no namespaces for the clients: run as root or allow user namespaces (scripts/test names the sysctl)")
    libc = ctypes.CDLL(None, use_errno=True)
    uid, gid = os.geteuid(), os.getegid()
    flags = _CLONE_NEWNS | _CLONE_NEWPID | _CLONE_NEWNET | (_CLONE_NEWUSER if uid else 0)
    if libc.unshare(flags) != 0:
        reason = os.strerror(ctypes.get_errno())
        raise Failure(f"no namespaces for the clients: {reason}")
    if uid:
        _write("/proc/self/setgroups", "deny")
        _write("/proc/self/uid_map", f"0 {uid} 1")
        _write("/proc/self/gid_map", f"0 {gid} 1")
    child = os.fork()
    if child == 0:
        # Process 1 of the namespace: the kernel kills all others when it exits.
        libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        for name in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(name, _exit_by_signal)
        os._exit(_with_errors_printed(main))
    for name in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(name, lambda number, _: os.kill(child, number))
    _, status = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(status) % 256


def _exit_by_signal(number, _):
    sys.exit(128 + number)


def _with_errors_printed(main):
    try:
        code = _inside(main)
    except SystemExit as end:
        code = end.code
    except Failure as failure:
        print(f"failed: {failure}", file=sys.stderr)
        code = 1
    except BaseException:
        traceback.print_exc()
        code = 1
    sys.stdout.flush()
    sys.stderr.flush()
    return code


def _inside(main):
    for command in (
        "mount --make-rprivate /",
        "mount -t proc proc /proc",
        "mount -t tmpfs tmpfs /run",
        "mkdir /run/netns",
    ):
        _run(command.split())
    return main()


def _succeeds(command):
    try:
        return subprocess.run(command.split(), capture_output=True).returncode == 0
    except FileNotFoundError:
        return False


def _write(path, text):
    with open(path, "w") as file:
        file.write(text)


def _run(command, **options):
    done = subprocess.run(command, capture_output=True, text=True, **options)
    if done.returncode != 0:
        raise Failure(f"{' '.join(command)}: {done.stderr.strip() or done.stdout.strip()}")


def _ip(*commands):
    _run(["ip", "-batch", "-"], input="\n".join(commands) + "\n")


class Network:
    """The bridge, with the tracker's addresses; hosts join by `host`."""

    def __init__(self):
        self._hosts = 0
        self._lock = threading.Lock()
        _ip(
            "link set lo up",
            "link add br0 type bridge stp_state 0 forward_delay 0",
            f"addr add {TRACKER_V4}/16 dev br0",
            # Without duplicate address detection, the address is usable at once.
            f"addr add {TRACKER_V6}/64 dev br0 nodad",
            "link set br0 up",
        )

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
        _ip(f"netns add {name}", f"link add veth{number} type veth peer name eth0 netns {name}")
        _ip(f"link set veth{number} master br0 up")
        nodad = " nodad" if family == "ipv6" else ""
        _run(
            ["ip", "-n", name, "-batch", "-"],
            input=f"link set lo up\naddr add {address}/{length} dev eth0{nodad}\n"
            f"link set eth0 up\nroute add default via {gateway}\n",
        )
        return Host(name, address, family)


class Host:
    """A namespace with one address."""

    def __init__(self, name, address, family):
        self.name, self.address, self.family = name, address, family

    def command(self, *arguments):
        """The command line that runs `arguments` in the namespace."""
        return ["ip", "netns", "exec", self.name, *map(str, arguments)]

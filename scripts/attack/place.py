"""Two network namespaces joined by veth devices, trackers in one of them, and a limit of a tracker's CPU time."""

import contextlib
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import threading
import time

sys.path.append(str(pathlib.Path(__file__).resolve().parent.parent / "lib"))

from processes import Failure, Process, poll

BIN = pathlib.Path(os.environ.get("ONRUSH_BIN", "."))
PORT, ADMIN_PORT = 6969, 6980
V4, V6 = "10.77.0.1", "fd77::1"
ADMIN = f"{V4}:{ADMIN_PORT}"
# Blocks of addresses in the namespace of the load. The spoofed ones lead nowhere.
LOCAL = ["10.78.0.0/24", "10.79.0.0/16", "10.80.0.0/16", "10.96.0.0/11", "fd78::/64", "fd79::/32", "fd80::/32",
         "fd90::/16"]
SPOOFED = ["10.128.0.0/9", "fda0::/16"]
# A run is disturbed if what is not part of it takes a vCPU away for more than this share of the time.
DISTURBED = 0.05
# The kernel ends a program that is started by this when this script ends, by whatever means.
TIED = ["setpriv", "--pdeathsig", "KILL", "--"]
TARGETS = ["--target", f"{V4}:{PORT}", "--target", f"[{V6}]:{PORT}"]
HONEST = ["--source", "10.78.0.1-10.78.0.64", "--source", "fd78::1-fd78::40"]
NEWCOMERS = ["--newcomers-from", "10.79.0.0/16", "--newcomers-from", "fd79::/32"]
PROVEN = ["--attack-from", "10.80.0.0/16", "--attack-from", "fd80::/32"]
FORGED = ["--attack-from", SPOOFED[0], "--attack-from", SPOOFED[1]]


def unshare():
    """The command that starts a program in a network namespace; ends this process where that is forbidden."""
    # onrush-load compares the namespace with that of process 1. Who may not read that needs a user namespace.
    plain = subprocess.run(["readlink", "/proc/1/ns/net"], capture_output=True).returncode == 0 and os.geteuid() == 0
    command = ["unshare", *([] if plain else ["--map-root-user"]), "--net", "--"]
    done = subprocess.run([*command, "true"], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"error: no network namespaces for the attacks: {done.stderr.strip()}\n"
                 "  run it as root with CAP_SYS_ADMIN, or allow user namespaces (scripts/test names the sysctl)")
    return command


def ip(*lines, inside=()):
    subprocess.run([*inside, "ip", "-batch", "-"], input="\n".join(lines) + "\n", text=True, check=True)


def vcpus():
    """The vCPUs of tracker and load: the same one where there is only one."""
    allowed = sorted(os.sched_getaffinity(0))
    return allowed[0], allowed[min(1, len(allowed) - 1)]


class Ended(Exception):
    """A tracker ended by itself: no disturbance explains that."""


class Place:
    """The namespaces, for as long as a `with` lasts. This process is in that of the load."""

    def __enter__(self):
        self.tracker_cpu, self.load_cpu = vcpus()
        os.sched_setaffinity(0, {self.load_cpu})
        # Holds the tracker's namespace; ends with this script.
        self.holder = subprocess.Popen(["unshare", "--net", "--", "cat"], stdin=subprocess.PIPE)
        own = os.readlink("/proc/self/ns/net")
        try:
            poll("a second network namespace", lambda: os.readlink(f"/proc/{self.holder.pid}/ns/net") != own, 10)
        except Failure as failure:
            sys.exit(f"error: {failure}")
        self.inside = ["nsenter", f"--net=/proc/{self.holder.pid}/ns/net", "--"]
        ip("link set lo up", f"link add load type veth peer name tracker netns {self.holder.pid}",
           "addr add 10.77.0.2/16 dev load", "addr add fd77::2/64 dev load nodad", "link set load up")
        ip("link set lo up", f"addr add {V4}/16 dev tracker", f"addr add {V6}/64 dev tracker nodad",
           "link set tracker up", inside=self.inside)
        ip("route add 10.0.0.0/8 via 10.77.0.2", "route add fd00::/8 via fd77::2", inside=self.inside)
        ip(*[f"route add local {block} dev lo" for block in LOCAL], *[f"route add blackhole {block}" for block in SPOOFED])
        pathlib.Path("/proc/sys/net/ipv6/ip_nonlocal_bind").write_text("1")
        return self

    def __exit__(self, *_):
        self.holder.stdin.close()
        self.holder.wait()

    @contextlib.contextmanager
    def tracker(self, config="", workers=1):
        """A tracker with these lines of configuration; yields its process."""
        with tempfile.TemporaryDirectory() as directory:
            directory = pathlib.Path(directory)
            (directory / "onrush.toml").write_text(config)
            command = [
                *self.inside, *TIED, "taskset", "-c", self.tracker_cpu, BIN / "onrush",
                "--config", directory / "onrush.toml", "--state-dir", directory / "state", "--workers", workers,
                "--listen", f"{V4}:{PORT}", "--listen", f"[{V6}]:{PORT}", "--admin", ADMIN,
            ]
            process = Process("the tracker", command, directory / "log", stdin=None)
            try:
                poll("the start of the tracker", lambda: process.must_run() and " ready" in process.text(), 30)
                yield process
            finally:
                ended = process.poll()
                process.send_signal(signal.SIGCONT)
                process.stop(seconds=30)
                # Not by a signal of this script.
                if ended:
                    raise Ended(f"the tracker ended with status {ended}:\n{process.tail()}")


def times(pid):
    """Seconds that each thread of a process ran, and waited for a vCPU (/proc/PID/task/TID/schedstat)."""
    found = {}
    for task in pathlib.Path(f"/proc/{pid}/task").iterdir():
        with contextlib.suppress(OSError):
            ran, waited, _ = (task / "schedstat").read_text().split()
            found[task.name] = (int(ran) / 1e9, int(waited) / 1e9)
    return found


def kept_waiting(before, after):
    """Seconds for which other programs kept a process from its vCPU, at least, between two readings of `times`.

    A thread waits while others run on its vCPU: the process's own, or other programs. What exceeds the run time of the
    process's others is due to other programs; a tracker's worker exceeds it most, as the other threads wait for it. The
    figure is too low where several workers are busy, as they do not run only while another waits.
    """
    grown = [(ran - before[task][0], waited - before[task][1])
             for task, (ran, waited) in after.items() if task in before]
    whole = sum(ran for ran, _ in grown)
    return max([0, *(waited - (whole - ran) for ran, waited in grown)])


def steal():
    """Seconds for which the hypervisor took each vCPU away (/proc/stat)."""
    lines = map(str.split, pathlib.Path("/proc/stat").read_text().splitlines())
    return {int(line[0][3:]): int(line[8]) / os.sysconf("SC_CLK_TCK") for line in lines
            if line[0].startswith("cpu") and line[0] != "cpu"}


@contextlib.contextmanager
def time_limit(seconds):
    """Ends what is run in the main thread with a Failure when the time is over."""
    def over(*_):
        raise Failure(f"not within {seconds} s")

    signal.signal(signal.SIGALRM, over)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)


class Watch:
    """Disturbances that keep a tracker and the load from their vCPUs, from now on.

    Without the pid of a tracker, as that of a limited one waits anyhow, only what the hypervisor takes.
    """

    def __init__(self, where, pid=None):
        # This script is the load of the rows that do not run onrush-load.
        self.pids = {"the tracker": pid, "the script": os.getpid()} if pid else {}
        self.vcpus = {where.tracker_cpu, where.load_cpu}
        self.began, self.steal = time.monotonic(), steal()
        self.times = {name: times(pid) for name, pid in self.pids.items()}

    def disturbances(self):
        """Disturbances that took a vCPU away for more than a share DISTURBED of the time."""
        seconds, now = time.monotonic() - self.began, steal()
        taken = max(now[vcpu] - self.steal[vcpu] for vcpu in self.vcpus)
        shares = {"the hypervisor took a vCPU": taken / seconds}
        for name, pid in self.pids.items():
            shares[f"other programs kept {name} waiting"] = kept_waiting(self.times[name], times(pid)) / seconds
        return [f"{what} for {share:.0%} of the time" for what, share in shares.items() if share > DISTURBED]


def highest_memory(pid):
    """The highest resident memory of a process so far in bytes (VmHWM of /proc/PID/status)."""
    lines = pathlib.Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith("VmHWM:"))


def cgroup(pid, share):
    """Limits a process to a share of a vCPU by a new control group; its directory, or None where that is forbidden."""
    for line in pathlib.Path("/proc/self/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers == "":
            root = pathlib.Path("/sys/fs/cgroup")
        elif "cpu" in controllers.split(","):
            root = pathlib.Path("/sys/fs/cgroup/cpu")
        else:
            continue
        group = root / path.lstrip("/") / f"onrush-attack-{os.getpid()}-{pid}"
        try:
            group.mkdir()
        except OSError:
            continue
        try:
            period = 100_000
            quota = max(1000, int(period * share))
            if controllers == "":
                (group / "cpu.max").write_text(f"{quota} {period}")
            else:
                (group / "cpu.cfs_period_us").write_text(str(period))
                (group / "cpu.cfs_quota_us").write_text(str(quota))
            (group / "cgroup.procs").write_text(str(pid))
            return group
        except OSError:
            with contextlib.suppress(OSError):
                group.rmdir()
    return None


@contextlib.contextmanager
def limited(process, share):
    """Limits a tracker to a share of a vCPU; yields how."""
    group = cgroup(process.pid, share)
    if group is not None:
        try:
            yield "cgroup"
        finally:
            # A group with a process cannot be removed.
            process.terminate()
            process.wait(30)
            with contextlib.suppress(OSError):
                group.rmdir()
        return
    # Stopped and continued with the period of a quota.
    over = threading.Event()

    def alternate():
        while not over.is_set():
            process.send_signal(signal.SIGCONT)
            over.wait(0.1 * share)
            process.send_signal(signal.SIGSTOP)
            over.wait(0.1 * (1 - share))
        process.send_signal(signal.SIGCONT)

    thread = threading.Thread(target=alternate)
    thread.start()
    try:
        yield "SIGSTOP and SIGCONT"
    finally:
        over.set()
        thread.join()

"""A test host: systemd as process 1 of new namespaces, on an in-memory overlay over this machine's files, with a network
that has only a loopback interface.

This machine is not changed. Of its units only the journal is started.
"""

import contextlib
import json
import os
import pathlib
import shutil
import signal
import subprocess
import tempfile
import time

TIMEOUT = 120  # deadline of every wait, seconds
ENVIRONMENT = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "DEBIAN_FRONTEND": "noninteractive", "LC_ALL": "C.UTF-8"}

# Puts itself into a control group for this host alone: hosts side by side would manage the same groups otherwise. Then
# executes the next arguments.
GROUP = r"""
set -e
mount -t cgroup2 cgroup2 "$1"
mkdir "$1/$2"
echo $$ >"$1/$2/cgroup.procs"
shift 2
exec "$@"
"""
# Removes that group, once its processes have ended.
UNGROUP = 'mount -t cgroup2 cgroup2 "$1" && find "$1/$2" -depth -type d -exec rmdir {} +'
# Runs as process 1 of the new namespaces and executes systemd.
INIT = r"""
set -e
mount --make-rprivate /
mount -t tmpfs -o size=2g tmpfs "$1"
mkdir "$1/upper" "$1/work" "$1/root"
root="$1/root"
mount -t overlay overlay -o "lowerdir=/,upperdir=$1/upper,workdir=$1/work" "$root"
mount -t proc proc "$root/proc"
mount -t sysfs sysfs "$root/sys"
mount -t cgroup2 cgroup2 "$root/sys/fs/cgroup"
mount -t tmpfs tmpfs "$root/run"
mount -t tmpfs tmpfs "$root/tmp"
mount --rbind /dev "$root/dev"
ip link set lo up
# Units of this machine are not started.
units="$root/usr/lib/systemd/system"
for wants in "$root"/etc/systemd/system/*.wants "$units"/*.wants; do rm -rf "$wants"; done
rm -f "$root"/etc/systemd/system/*.service "$root"/etc/systemd/system/*.socket
rm -rf "$root/var/log/journal"
mkdir -p "$units/sysinit.target.wants"
for unit in systemd-journald.service systemd-journald.socket; do
  ln -s "../$unit" "$units/sysinit.target.wants/$unit"
done
printf '%s\n' '[Unit]' 'Requires=basic.target' 'After=basic.target' >"$units/onrush-test.target"
mkdir "$root/old"
cd "$root"
pivot_root . old
umount -l /old
rmdir /old
exec env -i container=other PATH=/usr/sbin:/usr/bin:/sbin:/bin \
  /lib/systemd/systemd --system --unit=onrush-test.target --log-target=journal --show-status=no
"""


def until(what, condition):
    """Polls a condition until its value is true; returns that."""
    deadline = time.monotonic() + TIMEOUT
    while not (found := condition()):
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {TIMEOUT} s: {what}")
        time.sleep(0.05)
    return found


def child(pid):
    """The pid of the first child of a process; None without any."""
    children = pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return int(children[0]) if children else None


class Host:
    """A booted host; a context manager that stops it."""

    def __enter__(self):
        self.place = tempfile.mkdtemp(prefix="onrush-host-")
        self.log = os.path.join(self.place, "boot.log")
        mount, groups = (os.path.join(self.place, name) for name in ["root", "groups"])
        os.mkdir(mount)
        os.mkdir(groups)
        self.group = [groups, os.path.basename(self.place)]
        with open(self.log, "wb") as log:
            command = ["unshare", "--mount", "bash", "-c", GROUP, "group", *self.group]
            command += ["unshare", "--pid", "--fork", "--kill-child", "--mount", "--cgroup", "--uts", "--ipc", "--net"]
            self.boot = subprocess.Popen(
                command + ["bash", "-c", INIT, "init", mount], stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        try:
            self.until("systemd has booted", self._running)
        except BaseException:
            print(pathlib.Path(self.log).read_text())
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        self.boot.kill()
        self.boot.wait()
        ungroup = ["unshare", "--mount", "bash", "-c", UNGROUP, "ungroup", *self.group]
        self.until("its processes have ended", lambda: subprocess.run(ungroup, capture_output=True).returncode == 0)
        shutil.rmtree(self.place, ignore_errors=True)

    def _running(self):
        if self.boot.poll() is not None:
            raise AssertionError("systemd could not be booted in namespaces (needs root, overlayfs and cgroup2)")
        self.pid = child(self.boot.pid)
        if not self.pid:
            return False
        state = self.run("systemctl", "is-active", "onrush-test.target", check=False)
        return state.stdout.strip() == "active"

    def _enter(self, command):
        return ["nsenter", "-t", str(self.pid), "-m", "-p", "-n", "-u", "-i", "-C", "--root", "--wd", *command]

    def begin(self, *command):
        """Starts a command on the host, with its output in pipes."""
        return subprocess.Popen(
            self._enter(command), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=ENVIRONMENT
        )

    def run(self, *command, check=True, input=None):
        """Runs a command on the host."""
        done = subprocess.run(
            self._enter(command), input=input, capture_output=True, text=True, timeout=5 * TIMEOUT, env=ENVIRONMENT
        )
        if check and done.returncode != 0:
            raise AssertionError(f"{' '.join(command)} ended in {done.returncode}:\n{done.stdout}{done.stderr}")
        return done

    def path(self, path):
        """The path of a file of the host, seen from outside."""
        return f"/proc/{self.pid}/root{path}"

    def read(self, path):
        """The text of a file of the host."""
        return pathlib.Path(self.path(path)).read_text()

    def write(self, path, text, mode=0o644):
        """Writes a file of the host."""
        os.makedirs(os.path.dirname(self.path(path)), exist_ok=True)
        with open(self.path(path), "w") as file:
            file.write(text)
        os.chmod(self.path(path), mode)

    def put(self, source, path, mode=0o755):
        """Copies a file to the host."""
        os.makedirs(os.path.dirname(self.path(path)), exist_ok=True)
        shutil.copyfile(source, self.path(path))
        os.chmod(self.path(path), mode)

    def remove(self, *paths):
        """Removes files or directories of the host, where they exist."""
        self.run("rm", "-rf", *paths)

    @contextlib.contextmanager
    def drop_in(self, unit, text):
        """A drop-in for a unit during a block."""
        path = f"/etc/systemd/system/{unit}.d/test.conf"
        self.write(path, text)
        self.run("systemctl", "daemon-reload")
        try:
            yield
        finally:
            self.remove(os.path.dirname(path))
            self.run("systemctl", "daemon-reload")

    @contextlib.contextmanager
    def rewritten(self, path, text):
        """Another text in a file during a block."""
        before = self.read(path)
        self.write(path, text)
        try:
            yield
        finally:
            self.write(path, before)

    def show(self, unit, key):
        """A property of a unit."""
        return self.run("systemctl", "show", "--value", "-p", key, unit).stdout.strip()

    def journal(self, unit, since, *options):
        """The messages of a unit, or of all, in the journal since a time (seconds since the epoch)."""
        self.run("journalctl", "--sync")  # flushes the last lines
        of_unit = ["-u", unit] if unit else []
        command = ["journalctl", *of_unit, "-o", "cat", "--no-pager", f"--since=@{since:.3f}", *options]
        return self.run(*command).stdout

    def errors(self, unit, since):
        """The messages of a unit's program in the journal with priority `err` or more, each as a text."""
        lines = self.journal(unit, since, "-p", "err", "-o", "json", "-q", "-t", unit).splitlines()
        return [json.loads(line)["MESSAGE"] for line in lines]

    def main_pid(self, unit):
        """The pid of a unit's main process, seen from outside."""
        inside = self.show(unit, "MainPID")
        pids = self.pids(unit)
        for pid in pids:
            with open(f"/proc/{pid}/status") as status:
                numbers = next(line for line in status if line.startswith("NSpid:")).split()[1:]
            if numbers[-1] == inside:
                return pid
        raise AssertionError(f"no process {inside} among {pids}")

    def pids(self, unit):
        """The pids of a unit's processes: read from outside, its control group has those of the outer namespace."""
        return list(map(int, self.read("/sys/fs/cgroup" + self.show(unit, "ControlGroup") + "/cgroup.procs").split()))

    until = staticmethod(until)

    def kill(self, pid, number=signal.SIGKILL):
        """Sends a signal to a process of the host, by its pid seen from outside."""
        os.kill(pid, number)

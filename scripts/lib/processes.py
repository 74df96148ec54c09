"""Child processes with a log file, and polling with a deadline, for all scripts."""

import signal
import subprocess
import time


class Failure(RuntimeError):
    """An error that a script, or a part of it, ends with; its message needs no traceback."""


def poll(what, condition, seconds, every=0.05):
    """Calls `condition()` until its value is true and returns that; at the deadline a Failure names `what`."""
    deadline = time.monotonic() + seconds
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > deadline:
            raise Failure(f"{what}: not within {seconds:.3g} s")
        time.sleep(every)


class Process(subprocess.Popen):
    """A process whose output goes to a log file."""

    def __init__(self, name, command, log, stdin=subprocess.DEVNULL, directory=None):
        self.name, self.log = name, log
        with open(log, "ab") as output:
            super().__init__(list(map(str, command)), stdin=stdin, stdout=output, stderr=output, cwd=directory)

    def must_run(self):
        """True; fails with the end of the log if the process has ended."""
        if self.poll() is not None:
            raise Failure(f"{self.name} ended with {self.returncode}:\n{self.tail()}")
        return True

    def tail(self, characters=1500):
        """The end of the log."""
        return self.text()[-characters:]

    def text(self):
        """The log."""
        with open(self.log, "rb") as file:
            return file.read().decode(errors="replace")

    def write(self, line):
        """Writes a line to the standard input."""
        self.stdin.write(line.encode() + b"\n")
        self.stdin.flush()

    def stop(self, by=signal.SIGTERM, seconds=120):
        """Sends a signal, and SIGKILL at the deadline; returns the exit code."""
        if self.poll() is None:
            self.send_signal(by)
            try:
                self.wait(seconds)
            except subprocess.TimeoutExpired:
                self.kill()
                self.wait()
        return self.returncode

"""Child processes with a log file, and polling with a deadline."""

import os
import signal
import subprocess
import time

from places import Failure


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


class Process:
    """A process whose output goes to a log file."""

    def __init__(self, name, command, log, environment=None, stdin=None):
        self.name, self.log = name, log
        with open(log, "ab") as output:
            self._process = subprocess.Popen(
                [str(part) for part in command],
                stdin=stdin or subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=dict(os.environ, **(environment or {})),
            )

    def exit_code(self):
        """The exit code; None while the process runs."""
        return self._process.poll()

    def must_run(self):
        """Fails with the end of the log if the process has ended."""
        if self.exit_code() is not None:
            raise Failure(f"{self.name} ended with {self.exit_code()}:\n{self.tail()}")

    def tail(self, characters=1500):
        """The end of the log."""
        return self.text()[-characters:]

    def text(self):
        """The log."""
        with open(self.log, "rb") as file:
            return file.read().decode(errors="replace")

    def write(self, line):
        """Writes a line to the standard input."""
        self._process.stdin.write(line.encode() + b"\n")
        self._process.stdin.flush()

    def stop(self, by=signal.SIGTERM, seconds=120):
        """Sends a signal, and SIGKILL at the deadline; returns the exit code."""
        if self._process.poll() is None:
            self._process.send_signal(by)
            try:
                self._process.wait(seconds)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        return self._process.returncode

    def kill(self):
        """Sends SIGKILL and waits."""
        self._process.kill()
        self._process.wait()

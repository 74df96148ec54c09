"""The tracker under test: its program, and a process of it on the network of the run."""

import os
import subprocess
from pathlib import Path

from network import TRACKER_V4, TRACKER_V6
from places import ROOT, TARGET, Failure, say
from processes import Process, poll
from udp import Client

PORT = 6969


def binary():
    """The daemon in $ONRUSH_BIN, or a development build."""
    directory = os.environ.get("ONRUSH_BIN")
    if not directory:
        say("building the daemon")
        if subprocess.run(["bash", "-c", ". scripts/lib/build.sh && functional_build"], cwd=ROOT).returncode != 0:
            raise Failure("the daemon does not build; ONRUSH_BIN names a directory with a built one")
        directory = TARGET / "debug"
    path = Path(directory).absolute() / "onrush"
    if not os.access(path, os.X_OK):
        raise Failure(f"{path} cannot be executed (ONRUSH_BIN names its directory)")
    # For this script in its namespaces, which does not build.
    os.environ["ONRUSH_BIN"] = str(path.parent)
    return path


class Daemon:
    """A running daemon that listens on both families."""

    def __init__(self, path, directory):
        state = directory / "state"
        state.mkdir()
        command = [path, "--listen", f"{TRACKER_V4}:{PORT}", "--listen", f"[{TRACKER_V6}]:{PORT}"]
        command += ["--state-dir", state, "--log-level", "info"]
        self.process = Process("onrush", command, directory / "onrush.log")
        for address in (TRACKER_V4, TRACKER_V6):
            poll(f"an answer from onrush on {address}", lambda: self._answers(address), 120)

    def _answers(self, address):
        self.process.must_run()
        with Client(address, PORT) as client:
            return client.answers()

    def stop(self):
        """Sends SIGTERM; returns the exit code."""
        return self.process.stop()

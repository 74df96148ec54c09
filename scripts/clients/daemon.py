"""The tracker under test: found or built, started on the run's own network, ended."""

import os
import shutil
import subprocess
from pathlib import Path

from network import TRACKER_V4, TRACKER_V6
from places import ROOT, TARGET, Failure, say
from processes import Process, poll
from udp import Client

PORT = 6969


def binary():
    """The release daemon: what ONRUSH names, else what cargo builds (nothing to do when it is fresh)."""
    named = os.environ.get("ONRUSH")
    if named:
        path = Path(named).absolute()
        if not os.access(path, os.X_OK):
            raise Failure(f"ONRUSH names {path}, which cannot be run")
        return path
    say("building the release daemon")
    if not shutil.which("cargo"):
        raise Failure("no cargo to build the daemon with, and ONRUSH names none")
    command = ["bash", "-c", ". scripts/lib/build.sh && release_build --quiet"]
    if subprocess.run(command, cwd=ROOT).returncode != 0:
        raise Failure("the daemon does not build")
    path = TARGET / "release" / "onrush"
    # Should this script have to start again as root (see network.py), root need not build.
    os.environ["ONRUSH"] = str(path)
    return path


class Daemon:
    """The running daemon, on both families."""

    def __init__(self, path, directory):
        state = directory / "state"
        state.mkdir()
        command = [path, "--listen", f"{TRACKER_V4}:{PORT}", "--listen", f"[{TRACKER_V6}]:{PORT}"]
        command += ["--state-dir", state, "--log-level", "info"]
        self.process = Process("onrush", command, directory / "onrush.log")
        for address in (TRACKER_V4, TRACKER_V6):
            poll(f"an answer from onrush on {address}", lambda: self._answers(address), 10)

    def _answers(self, address):
        self.process.must_run()
        client = Client(address, PORT)
        try:
            return client.connect()
        finally:
            client.close()

    def stop(self):
        """Its exit code after SIGTERM."""
        return self.process.stop()

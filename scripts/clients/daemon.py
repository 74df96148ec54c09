"""The tracker under test: its program, and a process of it on the network of the run."""

import os
import subprocess
from pathlib import Path

from network import TRACKER_V4, TRACKER_V6
from places import ROOT, say
from processes import Failure, Process, poll
from udp import Client

PORT = 6969


def binary():
    """The daemon in $ONRUSH_BIN, or a development build."""
    if "ONRUSH_BIN" not in os.environ:
        say("building the daemon")
    build = ["bash", "-c", ". scripts/lib/build.sh && functional_build"]
    built = subprocess.run(build, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    path = Path(built.stdout.strip(), "onrush")
    if built.returncode != 0:
        raise Failure("the daemon does not build, or $ONRUSH_BIN is no directory")
    if not os.access(path, os.X_OK):
        raise Failure(f"{path} cannot be executed (ONRUSH_BIN names its directory)")
    # For this script in its namespaces, which does not build.
    os.environ["ONRUSH_BIN"] = str(path.parent)
    return path


class Daemon:
    """A running daemon that serves UDP and HTTP on both families."""

    def __init__(self, path, directory):
        state = directory / "state"
        state.mkdir()
        command = [path, "--state-dir", state, "--log-level", "info"]
        for flag in ("--listen", "--http"):
            command += [flag, f"{TRACKER_V4}:{PORT}", flag, f"[{TRACKER_V6}]:{PORT}"]
        self.process = Process("onrush", command, directory / "onrush.log")
        for address in (TRACKER_V4, TRACKER_V6):
            poll(f"an answer from onrush on {address}", lambda: self._answers(address), 120)

    def _answers(self, address):
        with Client(address, PORT) as client:
            return self.process.must_run() and client.answers()

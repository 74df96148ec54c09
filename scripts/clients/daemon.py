"""The tracker under test: its program, and a process of it on the network of the run."""

import os
import subprocess
import sys
from pathlib import Path

from certificate import Certificate
from network import TRACKER_V4, TRACKER_V6
from places import ROOT, say
from processes import Failure, Process, poll
from udp import Client
from websocket import Client as WebSocket

PORT = 6969
HTTPS_PORT = 443
ADMIN = "127.0.0.1:6980"


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


def certificates(directory):
    """One for the tracker's addresses, and one for a name."""
    return (
        Certificate(directory, "addresses", f"IP:{TRACKER_V4}", f"IP:{TRACKER_V6}"),
        Certificate(directory, "other", "DNS:tracker.example"),
    )


class Daemon:
    """A running daemon that serves UDP, HTTP and HTTPS on both families. `certificate`, for its addresses, is the
    first of the configuration: clients get it that send no name in SNI, or an address as libtorrent does. `other` is
    for a name. On a `host` of its own it takes requests from the device by AF_XDP."""

    def __init__(self, path, directory, host=None):
        state = directory / "state"
        state.mkdir()
        self.certificate, self.other = certificates(directory)
        served = (self.certificate, self.other)
        config = directory / "onrush.toml"
        chains, keys = [str(each.chain) for each in served], [str(each.key) for each in served]
        config.write_text(f"[http]\ncertificates = {chains}\nkeys = {keys}\n")
        command = [path, "--config", config, "--state-dir", state, "--log-level", "info"]
        for flag, port in (("--listen", PORT), ("--http", PORT), ("--https", HTTPS_PORT)):
            command += [flag, f"{TRACKER_V4}:{port}", flag, f"[{TRACKER_V6}]:{port}"]
        if host:
            config.write_text(f"{config.read_text()}[xdp]\nrequired = true\n")
            command = host.command(*command, "--xdp", "eth0", "--admin", ADMIN)
        self._host = host
        self.process = Process("onrush", command, directory / "onrush.log")
        for address in (TRACKER_V4, TRACKER_V6):
            poll(f"an answer from onrush on {address}", lambda: self._answers(address), 120)

    def metrics(self):
        """The text of /metrics."""
        code = "import sys, urllib.request as url; print(url.urlopen(sys.argv[1], timeout=60).read().decode())"
        command = self._host.command(sys.executable, "-c", code, f"http://{ADMIN}/metrics")
        return subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout

    def _answers(self, address):
        with Client(address, PORT) as client:
            return self.process.must_run() and client.answers()


class Reference:
    """The tracker of bittorrent-tracker in place of the daemon, without UDP (see reference.mjs)."""

    def __init__(self, directory):
        self.certificate, self.other = certificates(directory)
        script = ROOT / "scripts" / "clients" / "reference.mjs"
        served = (self.certificate.chain, self.certificate.key)
        command = ["node", script, os.environ["BITTORRENT_TRACKER"], PORT, HTTPS_PORT, *served]
        self.process = Process("bittorrent-tracker", command, directory / "bittorrent-tracker.log")
        poll("an answer from bittorrent-tracker", self._answers, 120)

    def _answers(self):
        self.process.must_run()
        try:
            return WebSocket(TRACKER_V4, PORT).scrape(bytes(20))
        except OSError:
            return None

"""The clients as peers of a swarm, each in its own namespace.

Other ways to find peers than the tracker are disabled where a client allows it. aria2 uses UDP trackers only with its DHT
enabled; the torrent is private, aria2 has no DHT node to contact, and the namespace has no route to the internet. Over
HTTPS and wss each verifies the tracker's certificate, and accepts those in the file `trusted`.
"""

import json
import os
import re
import signal
import subprocess

from certificate import key_hash
from places import VENV_PYTHON, ROOT
from processes import Failure, Process
from torrent import PIECE

PORT = 16881


class Peer:
    """A running client, whose process ends on SIGTERM."""

    # The families over which it announces, by protocol.
    families = {"udp": ("ipv4",), "http": ("ipv4", "ipv6"), "https": ("ipv4", "ipv6")}

    @classmethod
    def version(cls):
        """The first number with a dot in what its command prints."""
        done = subprocess.run(cls.version_command, capture_output=True, text=True, timeout=120)
        found = re.search(r"\d+(\.\d+)+", done.stdout + done.stderr)
        if done.returncode != 0 or not found:
            raise Failure(f"{cls.version_command}: {done.stdout}{done.stderr}")
        return found[0]

    def leave(self):
        """Makes it announce `stopped`."""
        self.stop()

    def stop(self):
        return self.process.stop()


class Libtorrent(Peer):
    """libtorrent through its Python binding (see peer_libtorrent.py)."""

    name = "libtorrent"
    families = dict.fromkeys(("udp", "http", "https", "ws", "wss"), ("ipv4", "ipv6"))
    version_command = [VENV_PYTHON, "-c", "import libtorrent; print(libtorrent.__version__)"]

    def __init__(self, host, torrent, directory, log, trusted=""):
        script = ROOT / "scripts" / "clients" / "peer_libtorrent.py"
        command = host.command(
            "env", f"SSL_CERT_FILE={trusted}", VENV_PYTHON, script, host.address, PORT, torrent.path, directory)
        self.process = Process(self.name, command, log, stdin=subprocess.PIPE)

    def reannounce(self):
        self.process.write("reannounce")

    def scrape(self):
        self.process.write("scrape")

    def skip(self):
        """Deselects every piece: a partial seed (BEP 21)."""
        self.process.write("skip")


class Transmission(Peer):
    """transmission-daemon with its own configuration; it loads torrents from a watched directory."""

    name = "transmission"
    # Over HTTP IPv6 works too, but its RPC, which `leave` needs, does not listen on a host without IPv4.
    families = {"udp": ("ipv4",), "http": ("ipv4",), "https": ("ipv4",)}
    version_command = ["transmission-daemon", "--version"]

    def __init__(self, host, torrent, directory, log, trusted="", also=()):
        home = directory.parent / f"{directory.name}.transmission"
        watched = home / "watched"
        watched.mkdir(parents=True)
        for each in (torrent, *also):
            (watched / each.path.name).write_bytes(each.path.read_bytes())
        settings = {
            "dht-enabled": False,
            "lpd-enabled": False,
            "pex-enabled": False,
            "port-forwarding-enabled": False,
            "utp-enabled": False,
            "peer-port": PORT,
            "bind-address-ipv4": host.address if host.family == "ipv4" else "0.0.0.0",
            "bind-address-ipv6": host.address if host.family == "ipv6" else "::",
            "rpc-bind-address": "127.0.0.1",
            "rpc-whitelist-enabled": False,
            "download-dir": str(directory),
            "watch-dir": str(watched),
            "watch-dir-enabled": True,
            "cache-size-mb": 0,
            "message-level": 2,
        }
        (home / "settings.json").write_text(json.dumps(settings))
        # Version 3 verifies if it is told to, later ones do by default.
        verifies = ("env", "TR_CURL_SSL_VERIFY=1", f"CURL_CA_BUNDLE={trusted}")
        command = host.command(*verifies, "transmission-daemon", "--foreground", "--config-dir", home)
        self.process = Process(self.name, command, log)
        self._host = host

    def leave(self):
        # While it exits, transmission 3 sends nothing over HTTP (tr_webRun).
        command = self._host.command("transmission-remote", "127.0.0.1:9091", "--torrent", "all", "--stop")
        done = subprocess.run(command, capture_output=True, text=True, timeout=120)
        if done.returncode != 0:
            raise Failure(f"{command}: {done.stdout}{done.stderr}")


class Aria2(Peer):
    """aria2c. A leecher keeps running as a seeder, as aria2 announces `completed` only while it seeds."""

    name = "aria2"
    version_command = ["aria2c", "--version"]

    def __init__(self, host, torrent, directory, log, trusted="", interval=0):
        command = host.command(
            "aria2c",
            "--no-conf=true",
            f"--dir={directory}",
            f"--listen-port={PORT}",
            "--enable-dht=true",
            "--enable-dht6=false",
            f"--dht-listen-port={PORT + 1}",
            f"--dht-file-path={directory.parent / (directory.name + '.dht')}",
            "--enable-peer-exchange=false",
            "--bt-enable-lpd=false",
            "--check-integrity=true",
            "--file-allocation=none",
            "--summary-interval=0",
            f"--bt-tracker-interval={interval}",
            "--console-log-level=info",
            "--show-console-readout=false",
            "--seed-ratio=0.0",
            f"--ca-certificate={trusted}",
            torrent.path,
        )
        self.process = Process(self.name, command, log)

    def stop(self):
        # On SIGTERM aria2 exits without announcing `stopped`.
        return self.process.stop(signal.SIGINT)


class WebTorrent(Peer):
    """webtorrent on a page in Chromium (see page.mjs)."""

    name = "webtorrent"
    families = {"ws": ("ipv4",), "wss": ("ipv6",)}

    def __init__(self, host, torrent, directory, log, trusted):
        script = ROOT / "scripts" / "clients" / "page.mjs"
        bundle = f"{os.environ['WEBTORRENT']}/dist/webtorrent.min.js"
        command = host.command(
            "node", script, bundle, torrent.path, directory, torrent.info_hash.hex(), torrent.tracker, torrent.name,
            PIECE, key_hash(trusted))
        self.process = Process(self.name, command, log)


CLIENTS = {client.name: client for client in (Libtorrent, Transmission, Aria2, WebTorrent)}

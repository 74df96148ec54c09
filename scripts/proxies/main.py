"""Announces through real proxies, with the configurations of docs/HTTP.md, each in front of a tracker of its own.

Two peers at addresses of 127.0.0.0/8 that are not the proxy's announce in one swarm, with fields that name somebody else.
The tracker has to return to each its own address (BEP 24), and to the second one the first as its only peer. Then both
announce again by the same connections, and the tracker has refused nothing. Uses free ports of 127.0.0.1.
"""

import http.client
import os
import re
import socket
import ssl
import struct
import sys
import tempfile
import time
import traceback
from pathlib import Path
from urllib.request import urlopen

from certificate import Certificate
from processes import Failure, Process, poll

ROOT = Path(__file__).resolve().parents[2]
HOST = "127.0.0.1"
# Of the peers, which no proxy uses.
PEERS = ("127.0.0.9", "127.0.0.10")
# What clients send to claim another address.
SPOOFED = {
    "X-Forwarded-For": "203.0.113.5", "X-Real-IP": "203.0.113.6", "Forwarded": "for=203.0.113.7",
}
# For a process to serve, and for a reply, seconds.
DEADLINE = 60
TRACKER = "127.0.0.1:6969"
NGINX = """
daemon off;
pid {place}/nginx.pid;
error_log stderr;
events {{}}
http {{
{text}
}}
"""


def examples(language):
    """The configurations of this language in the document, in their order."""
    text = (ROOT / "docs/HTTP.md").read_text()
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


def adapted(text, *changes):
    """A configuration with other addresses and paths; each has to be in it once."""
    for old, new in changes:
        if text.count(old) != 1:
            raise Failure(f"{old!r} is not once in the example:\n{text}")
        text = text.replace(old, str(new))
    return text


def free_port():
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return probe.getsockname()[1]


def listens(port):
    with socket.socket() as probe:
        return probe.connect_ex((HOST, port)) == 0


# Each writes the configuration of a proxy at `port` for a tracker, and returns the command that starts it.

def nginx(place, tracker, port, certificate):
    [text] = examples("nginx")
    live = "/etc/letsencrypt/live/tracker.example.org"
    text = adapted(
        text, (TRACKER, tracker), ("listen 443 ssl", f"listen {HOST}:{port} ssl"),
        (f"{live}/fullchain.pem", certificate.chain), (f"{live}/privkey.pem", certificate.key))
    (place / "nginx.conf").write_text(NGINX.format(place=place, text=text))
    return ["nginx", "-p", place, "-c", place / "nginx.conf"]


def haproxy_fields(place, tracker, port, _certificate):
    text = adapted(examples("haproxy")[0], (TRACKER, tracker), ("bind :80", f"bind {HOST}:{port}"))
    (place / "haproxy.cfg").write_text(text)
    return ["haproxy", "-db", "-f", place / "haproxy.cfg"]


def haproxy_header(place, tracker, port, certificate):
    text = adapted(
        examples("haproxy")[1], (TRACKER, tracker), ("bind :443", f"bind {HOST}:{port}"),
        ("/etc/haproxy/tracker.example.org.pem", certificate.both))
    (place / "haproxy.cfg").write_text(text)
    return ["haproxy", "-db", "-f", place / "haproxy.cfg"]


def hitch(place, tracker, port, certificate):
    [text] = examples("hitch")
    host, _, number = tracker.rpartition(":")
    text = adapted(
        text, ("[127.0.0.1]:6969", f"[{host}]:{number}"), ("[*]:443", f"[{HOST}]:{port}"),
        ("/etc/hitch/tracker.example.org.pem", certificate.both))
    (place / "hitch.conf").write_text(text)
    user = ["--user=nobody"] if os.geteuid() == 0 else []
    return ["hitch", "--config", place / "hitch.conf", *user]


# Title, how the proxy names the client, whether it has TLS, and its configuration.
PROXIES = [
    ("nginx with X-Forwarded-For and TLS", "x-forwarded-for", True, nginx),
    ("HAProxy with X-Forwarded-For", "x-forwarded-for", False, haproxy_fields),
    ("HAProxy with the PROXY protocol and TLS", "proxy-protocol", True, haproxy_header),
    ("hitch with the PROXY protocol and TLS", "proxy-protocol", True, hitch),
]


class Tracker:
    """A tracker that trusts 127.0.0.1."""

    def __init__(self, place, client_address):
        self.address = f"{HOST}:{free_port()}"
        config = place / "onrush.toml"
        config.write_text(
            f'listen = ["{HOST}:0"]\nstate_dir = "{place / "state"}"\n[http]\nlisten = ["{self.address}"]\n'
            f'proxies = ["{HOST}"]\nclient_address = "{client_address}"\n[admin]\nlisten = "{HOST}:0"\n')
        (place / "state").mkdir(mode=0o700)
        program = Path(os.environ["ONRUSH_BIN"]) / "onrush"
        self.process = Process("onrush", [program, "--config", config], place / "onrush.log")

    def await_ready(self):
        poll("the tracker", lambda: self.process.must_run() and " ready: " in self.process.text(), DEADLINE)

    def refused(self):
        """The requests over HTTP that were refused, by reason."""
        admin = re.search(r"(http://[0-9.:]+)\S* shows", self.process.text())[1]
        with urlopen(f"{admin}/metrics", timeout=DEADLINE) as page:
            text = page.read().decode()
        found = re.findall(r'^onrush_http_refused_requests_total\{.*reason="(\w+)".*\} (\d+)', text, re.MULTILINE)
        if not found:
            raise Failure("the metrics have no refused requests over HTTP")
        return {reason: int(number) for reason, number in found if number != "0"}


class Peer:
    """A connection of a peer to a proxy, which is kept."""

    def __init__(self, ip, port, certificate):
        self.ip = ip
        source, timeout = (ip, 0), DEADLINE
        if certificate:
            context = ssl.create_default_context(cafile=certificate.chain)
            self._http = http.client.HTTPSConnection(
                HOST, port, source_address=source, timeout=timeout, context=context)
        else:
            self._http = http.client.HTTPConnection(HOST, port, source_address=source, timeout=timeout)

    def announce(self, info_hash):
        """The address that the tracker sees, and the peers that it returns."""
        escaped = "".join(f"%{byte:02X}" for byte in info_hash)
        target = f"/announce?info_hash={escaped}&peer_id=-XX0001-000000000000&port=7001&left=1"
        kept = self._http.sock
        self._http.request("GET", target, headers=SPOOFED)
        if kept and self._http.sock is not kept:
            raise Failure(f"{self.ip}: the connection was not kept")
        with self._http.getresponse() as response:
            status, body = response.status, response.read()
        found = re.search(rb"11:external ip4:(.{4})", body, re.DOTALL)
        peers = re.search(rb"5:peers(\d+):(.*)e$", body, re.DOTALL)
        if status != 200 or not found or not peers:
            raise Failure(f"{self.ip}: status {status}: {body!r}")
        entries = struct.iter_unpack(">4sH", peers[2])
        return socket.inet_ntoa(found[1]), [(socket.inet_ntoa(ip), port) for ip, port in entries]


def attempt(place, client_address, certificate, configure):
    """Fails unless both peers are stored at their own addresses."""
    tracker = Tracker(place, client_address)
    proxy = None
    try:
        tracker.await_ready()
        port = free_port()
        command = configure(place, tracker.address, port, certificate)
        proxy = Process(command[0], command, place / "proxy.log")
        poll("the proxy", lambda: proxy.must_run() and listens(port), DEADLINE)
        peers = [Peer(ip, port, certificate) for ip in PEERS]
        info_hash = os.urandom(20)
        expected = [
            (PEERS[0], []), (PEERS[1], [(PEERS[0], 7001)]),
            (PEERS[0], [(PEERS[1], 7001)]), (PEERS[1], [(PEERS[0], 7001)]),
        ]
        got = [peer.announce(info_hash) for peer in (*peers, *peers)]
        if got != expected or tracker.refused():
            raise Failure(f"{got} instead of {expected}, refused {tracker.refused()}")
    except Exception:
        for process in filter(None, (tracker.process, proxy)):
            print(f"--- {process.name}\n{process.tail()}")
        raise
    finally:
        for process in filter(None, (proxy, tracker.process)):
            process.stop(seconds=DEADLINE)


def main():
    failed = 0
    for title, client_address, has_tls, configure in PROXIES:
        started = time.monotonic()
        with tempfile.TemporaryDirectory(prefix="onrush-proxy-") as directory:
            place = Path(directory)
            # The workers of a proxy have another user.
            place.chmod(0o755)
            try:
                certificate = Certificate(place, "proxy-test", f"IP:{HOST}")
                attempt(place, client_address, certificate if has_tls else None, configure)
                result = "passed"
            except Exception:
                traceback.print_exc()
                result, failed = "FAILED", failed + 1
        print(f"{result}  {title:42} {time.monotonic() - started:5.1f} s", flush=True)
    print(f"{len(PROXIES) - failed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

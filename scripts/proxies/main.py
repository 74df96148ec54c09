"""Announces through real proxies, with the configurations of docs/HTTP.md, each in front of a tracker of its own.

Two peers at addresses of 127.0.0.0/8 that are not the proxy's announce in one swarm, with fields that name somebody else.
The tracker has to return to each its own address (BEP 24), and to the second one the first as its only peer. Then both
announce again by the same connections, and the tracker has refused nothing.

By WebSocket two peers with the same peer id announce from these addresses. The tracker has to count both, which it does
only as their addresses differ, and to pass on an offer and its answer. Then they are silent until they get a ping, and the
proxy has to keep their connections. Uses free ports of 127.0.0.1.
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
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.request import urlopen

from certificate import Certificate
from processes import Failure, Process, poll
from websocket import Client as WebSocket

ROOT = Path(__file__).resolve().parents[2]
HOST = "127.0.0.1"
# Of the peers, which no proxy uses.
PEERS = ("127.0.0.9", "127.0.0.10")
# What clients send to claim another address.
SPOOFED = {
    "X-Forwarded-For": "203.0.113.5", "X-Real-IP": "203.0.113.6", "Forwarded": "for=203.0.113.7",
}
PEER_ID = "-XX0001-000000000000"
# For a process to serve, and for a reply or a ping, seconds.
DEADLINE = 90
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


# Sockets that reserve ports until the end of this program.
reservations = []


def free_ports(count):
    """Different ports, reserved as the tests of the daemon reserve them: those of outgoing connections come last."""
    low, high = map(int, Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split())
    ports = []
    for port in sorted(range(10_000, 65_536), key=lambda port: low <= port <= high):
        reservation = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        try:
            reservation.bind(f"\0onrush-test-port-{port}")
            socket.create_server((HOST, port)).close()
        except OSError:
            reservation.close()
            continue
        reservations.append(reservation)
        ports.append(port)
        if len(ports) == count:
            return ports
    raise Failure(f"no {count} ports are free")


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

    def __init__(self, place, port, admin_port, client_address):
        self.address, self.admin = (f"{HOST}:{number}" for number in (port, admin_port))
        config = place / "onrush.toml"
        config.write_text(
            f'listen = ["{HOST}:0"]\nstate_dir = "{place / "state"}"\n[http]\nlisten = ["{self.address}"]\n'
            f'proxies = ["{HOST}"]\nclient_address = "{client_address}"\n[admin]\nlisten = "{self.admin}"\n')
        (place / "state").mkdir(mode=0o700)
        program = Path(os.environ["ONRUSH_BIN"]) / "onrush"
        self.process = Process("onrush", [program, "--config", config], place / "onrush.log")

    def await_ready(self):
        poll("the tracker", lambda: self.process.must_run() and " ready: " in self.process.text(), DEADLINE)

    def refused(self):
        """The requests over HTTP that were refused, by reason."""
        with urlopen(f"http://{self.admin}/metrics", timeout=DEADLINE) as page:
            text = page.read().decode()
        found = re.findall(r'^onrush_http_refused_requests_total\{.*reason="(\w+)".*\} (\d+)', text, re.MULTILINE)
        if not found:
            raise Failure("the metrics have no refused requests over HTTP")
        return {reason: int(number) for reason, number in found if number != "0"}


class Peer:
    """A connection of a peer to a proxy, which is kept."""

    def __init__(self, ip, port, tls):
        self.ip = ip
        source, timeout = (ip, 0), DEADLINE
        if tls:
            self._http = http.client.HTTPSConnection(HOST, port, source_address=source, timeout=timeout, context=tls)
        else:
            self._http = http.client.HTTPConnection(HOST, port, source_address=source, timeout=timeout)

    def announce(self, info_hash):
        """The address that the tracker sees, and the peers that it returns."""
        escaped = "".join(f"%{byte:02X}" for byte in info_hash)
        target = f"/announce?info_hash={escaped}&peer_id={PEER_ID}&port=7001&left=1"
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


def announces_by_http(port, tls):
    """Fails unless both peers are stored at their own addresses."""
    peers = [Peer(ip, port, tls) for ip in PEERS]
    info_hash = os.urandom(20)
    expected = [
        (PEERS[0], []), (PEERS[1], [(PEERS[0], 7001)]),
        (PEERS[0], [(PEERS[1], 7001)]), (PEERS[1], [(PEERS[0], 7001)]),
    ]
    got = [peer.announce(info_hash) for peer in (*peers, *peers)]
    if got != expected:
        raise Failure(f"{got} instead of {expected}")


def exchange_by_websocket(port, tls):
    """Fails unless the peers get an offer and its answer, and a ping each."""
    first, second = peers = [WebSocket(HOST, port, DEADLINE, ip, tls, SPOOFED) for ip in PEERS]
    announce = {"action": "announce", "info_hash": os.urandom(10).hex(), "peer_id": PEER_ID}
    offer, answer = ({"type": kind, "sdp": kind * 300} for kind in ("offer", "answer"))
    offer_id = {"offer_id": os.urandom(10).hex()}
    first.send({**announce, "left": 1})
    replies = [first.receive()]
    second.send({**announce, "left": 0, "offers": [{"offer": offer, **offer_id}]})
    replies.append(second.receive())
    offered = first.receive()
    first.send({**announce, **offer_id, "to_peer_id": PEER_ID, "answer": answer})
    answered = second.receive()
    counts = [(reply["complete"], reply["incomplete"]) for reply in replies]
    expected = [{**announce, **offer_id, "offer": offer}, {**announce, **offer_id, "answer": answer}]
    if counts != [(0, 1), (1, 1)] or [offered, answered] != expected:
        raise Failure(f"{replies}, {offered}, {answered}")
    for peer in peers:
        peer.await_ping()


def attempt(place, ports, client_address, certificate, configure):
    """Fails unless peers are served through the proxy."""
    port, *of_tracker = ports
    tracker, proxy = Tracker(place, *of_tracker, client_address), None
    try:
        tracker.await_ready()
        command = configure(place, tracker.address, port, certificate)
        proxy = Process(command[0], command, place / "proxy.log")
        poll("the proxy", lambda: proxy.must_run() and listens(port), DEADLINE)
        tls = certificate and ssl.create_default_context(cafile=certificate.chain)
        announces_by_http(port, tls)
        exchange_by_websocket(port, tls)
        if tracker.refused():
            raise Failure(f"refused: {tracker.refused()}")
    except Exception:
        for process in filter(None, (tracker.process, proxy)):
            print(f"--- {process.name}\n{process.tail()}")
        raise
    finally:
        for process in filter(None, (proxy, tracker.process)):
            process.stop(seconds=DEADLINE)


def result(proxy, ports):
    """Whether a proxy has passed, and a line that says so."""
    title, client_address, has_tls, configure = proxy
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="onrush-proxy-") as directory:
        place = Path(directory)
        # The workers of a proxy have another user.
        place.chmod(0o755)
        try:
            certificate = Certificate(place, "proxy-test", f"IP:{HOST}")
            attempt(place, ports, client_address, certificate if has_tls else None, configure)
            passed = True
        except Exception:
            traceback.print_exc()
            passed = False
    word = "passed" if passed else "FAILED"
    return passed, f"{word}  {title:42} {time.monotonic() - started:5.1f} s"


def main():
    ports = free_ports(3 * len(PROXIES))
    # Together, as they wait for pings.
    with ThreadPoolExecutor(len(PROXIES)) as pool:
        passed, lines = zip(*pool.map(result, PROXIES, zip(ports[::3], ports[1::3], ports[2::3])))
    print(*lines, f"{passed.count(True)} passed, {passed.count(False)} failed", sep="\n")
    return 0 if all(passed) else 1


if __name__ == "__main__":
    sys.exit(main())

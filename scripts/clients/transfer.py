"""Transfers a file from a seeder to a leecher that find each other only through the tracker.

libtorrent, transmission and aria2 announce over UDP and over HTTP, each with a plain tracker URL and with one that has
another path and a query, and over HTTPS, where they verify the tracker's certificate; over IPv4 and, where the client
supports it, IPv6. And a seeder over UDP finds a leecher over HTTP, and one over HTTPS. libtorrent and pages of
webtorrent in Chromium announce over WebSocket, with and without TLS, and find each other. A transfer passes when the
leecher's file has the seeder's SHA-256 and the tracker's scrape counts the download, or another seeder over WebSocket.
Beside each client run controls, which must transfer nothing: the same pair with the URL of a tracker that does not
exist, and a leecher over TLS that does not trust the certificate. bittorrent-tracker (npm) makes announces and scrapes
alone, those of its client's tests (announces.mjs). With --load, `onrush-load ws` loads the tracker meanwhile, which has
to pass its checks of every message. With --xdp the tracker is behind a veth device and gets its datagrams by AF_XDP, as
its metrics have to show.

A leecher that the tracker has listed beside the seeder, and that has not got the file after a third of the time, is
started once more, as clients do stall; the line of the transfer says so.

Everything runs on a network of its own (network.py). Prints a line per transfer, then a count.
"""

import argparse
import json
import os
import re
import shutil
import signal
import sys
import threading
import time
from pathlib import Path

from daemon import HTTPS_PORT, PORT, Daemon, Reference, binary
from install import install
from network import SCRATCH, TRACKER_V4, TRACKER_V6, Network, run_isolated
from peers import CLIENTS
from places import ROOT, say
from processes import Failure, Process, poll
from torrent import Torrent
from udp import Client
from websocket import Client as WebSocket

MEGABYTE = 1 << 20
# Paths of announce URLs, and the tracker's port, by protocol.
PATHS = {
    "udp": ("", "/announce/abc?x=1"), "http": ("/announce", "/x/announce.php?x=1"), "https": ("/announce",),
    "ws": ("",), "wss": ("/announce",),
}
PORTS = {"udp": PORT, "http": PORT, "https": HTTPS_PORT, "ws": PORT, "wss": HTTPS_PORT}
# Protocols of WebRTC peers, whose swarms are their own.
WEBRTC = ("ws", "wss")
# The client that announces without a transfer, and its protocols.
ANNOUNCER = "bittorrent-tracker"
ANNOUNCES = ("http", "https", *WEBRTC)
# Deadline of a transfer, from the first process to the comparison, seconds. A quiet host needs a tenth of it.
DEADLINE = 360
# A leecher that has not got the file is started once more after, seconds.
STALLED = 120
# Least duration of a control, seconds.
CONTROL = 8
# The load of --load, from one address, which may have 64 connections. The timeout is long, as the host is busy.
LOAD = (
    "--connections=48", "--rate=300", f"--duration={2 * DEADLINE}", "--timeout=60", "--max-loss=0.1", "--strict",
    "--quiet",
)


def main():
    arguments = parse_arguments()
    clients = arguments.only or [*CLIENTS, ANNOUNCER]
    install(clients + ["capture"] * bool(arguments.capture) + [ANNOUNCER] * arguments.reference)
    path = None if arguments.reference else binary()
    return run_isolated(lambda: recorded_attempts(path, clients, arguments))


def parse_arguments():
    parser = argparse.ArgumentParser(
        prog="scripts/transfer",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="ONRUSH_BIN names a directory with a built daemon; without it a development build is made.",
    )
    parser.add_argument("--only", action="append", choices=[*CLIENTS, ANNOUNCER], help="this client (repeatable)")
    parser.add_argument(
        "--over", action="append", choices=[*PATHS, "both"],
        help="announces over this protocol, or of one peer over UDP and one over HTTP(S) (repeatable; default: all)",
    )
    parser.add_argument("--size", type=int, default=8, metavar="MB", help="size of the files (default 8)")
    parser.add_argument("--capture", type=Path, metavar="DIR", help="keep logs and the tracker's traffic (pcap)")
    tracker = parser.add_mutually_exclusive_group()
    tracker.add_argument(
        "--reference", action="store_true",
        help="the tracker of bittorrent-tracker in place of onrush, over WebSocket: whether a failure is onrush's",
    )
    tracker.add_argument("--xdp", action="store_true", help="over UDP and beside HTTP, to a tracker with AF_XDP")
    tracker.add_argument("--load", action="store_true", help="over WebSocket, while onrush-load ws loads the tracker")
    arguments = parser.parse_args()
    if arguments.reference or arguments.load:
        arguments.over = arguments.over or list(WEBRTC)
    if arguments.xdp:
        arguments.over = arguments.over or ["udp", "both"]
        if os.geteuid() != 0:
            raise Failure("--xdp loads programs into the kernel, which needs root")
    return arguments


def recorded_attempts(path, clients, arguments):
    directory = SCRATCH / "transfer"
    directory.mkdir()
    network = Network(apart=arguments.xdp)
    daemon = Daemon(path, directory, network.tracker) if path else Reference(directory)
    over = arguments.over or [*PATHS, "both"]
    load = Load(network, directory, path.with_name("onrush-load")) if arguments.load else None
    if not arguments.capture:
        return attempts(daemon, load, clients, over, arguments.size, network, directory)
    arguments.capture.mkdir(parents=True, exist_ok=True)
    pcap = arguments.capture / "tracker.pcap"
    command = ["tcpdump", "-i", "br0", "-Z", "root", "--immediate-mode", "-w", pcap]
    command += ["port", PORT, "or", "port", HTTPS_PORT]
    recording = Process("tcpdump", command, directory / "tcpdump.log")
    try:
        poll("a recording", pcap.exists, DEADLINE)
        return attempts(daemon, load, clients, over, arguments.size, network, directory)
    finally:
        recording.stop()
        for log in directory.rglob("*.log"):
            kept = arguments.capture / "logs" / log.relative_to(directory)
            kept.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(log, kept)


def attempts(daemon, load, clients, over, megabytes, network, directory):
    """Runs all transfers and controls at the same time; returns the exit code."""
    started = time.monotonic()
    trusted = daemon.certificate.chain
    plan = [Transfer(network, directory, megabytes, trusted, *what) for what in combinations(clients, over)]
    if ANNOUNCER in clients:
        plan += [Announces(network, directory, trusted, protocol) for protocol in ANNOUNCES if protocol in over]
    controls = [
        Control(network, directory, CLIENTS[client], *what)
        for client in clients if client in CLIENTS
        for plain, tls in (("udp", "https"), ("ws", "wss"))
        if plain in CLIENTS[client].families and any((each in WEBRTC) == (plain in WEBRTC) for each in over)
        for what in (
            (f"{plain}, without tracker", trusted, url(plain, TRACKER_V4, port=PORT + 1)),
            (f"{tls}, certificate not trusted", daemon.other.chain, url(plain, TRACKER_V4), url(tls, TRACKER_V4)),
        )
    ]
    threads = [threading.Thread(target=each.run) for each in plan + controls]
    for thread in threads:
        thread.start()
    for thread in threads[: len(plan)]:
        thread.join()
    for control in controls:
        control.transfers_are_done.set()
    for thread in threads:
        thread.join()
    if load:
        load.run()
    last = [Taken(daemon)] if network.tracker else []
    results = plan + controls + ([load] if load else []) + last + [CleanExit(daemon)]
    failed = sum(1 for result in results if result.failure)
    print(f"{len(results)} attempts took {time.monotonic() - started:.1f} s")
    print(f"{len(results) - failed} passed, {failed} failed", flush=True)
    return 1 if failed else 0


def url(protocol, host, path="", port=None):
    """An announce URL. `host` is an address of the tracker."""
    bracketed = f"[{host}]" if ":" in host else host
    return f"{protocol}://{bracketed}:{port or PORTS[protocol]}{path or PATHS[protocol][0]}"


def combinations(clients, over):
    """The transfers: clients that seed and download, family, and protocol and path of the announce URLs, of the seeder
    and of the leecher if that has another one."""
    chosen = [CLIENTS[name] for name in clients if name in CLIENTS]
    for client in chosen:
        for protocol, paths in PATHS.items():
            if protocol in over:
                for family in client.families.get(protocol, ()):
                    for path in paths:
                        yield [client, client], family, [(protocol, path)]
        if "both" in over:
            for family in client.families.get("udp", ()):
                for other in ("http", "https"):
                    yield [client, client], family, [(each, PATHS[each][0]) for each in ("udp", other)]
    pair = [CLIENTS["libtorrent"], CLIENTS["webtorrent"]]
    if all(client in chosen for client in pair):
        for protocol, each in zip(WEBRTC, (pair, pair[::-1])):
            if protocol in over:
                yield each, "ipv4", [(protocol, PATHS[protocol][0])]


_output = threading.Lock()


class Attempt:
    """A transfer or a check, reported in one line."""

    failure = None

    def run(self):
        started = time.monotonic()
        try:
            detail = self.attempt()
        except Exception as error:  # reported in the line of this attempt
            self.failure = str(error) if isinstance(error, Failure) else repr(error)
        seconds = time.monotonic() - started
        with _output:
            if self.failure:
                print(f"FAILED  {self.title:43} {seconds:5.1f} s  {self.failure}", flush=True)
            else:
                print(f"passed  {self.title:43} {seconds:5.1f} s  {detail}", flush=True)


class Pair(Attempt):
    """A seeder and a leecher, each in its own namespace."""

    def __init__(self, network, directory, title, clients, family, size, trusted, *urls):
        """The clients of both, the file of the certificate that both trust, and the announce URL of both, or of the
        seeder and of the leecher."""
        self.title = title
        self._hosts = [network.host(family), network.host(family)]
        self._clients, self._trusted = clients, trusted
        name = title.replace(" ", "-").replace("/", "_").replace("?", "_")
        self._directory = directory / name
        self.torrent = Torrent(self._directory / "seeder", f"{clients[0].name}.bin", size, urls[0])
        self._torrents = [self.torrent, self.torrent.at(urls[-1])]
        self._running = []

    def start_seeder(self):
        return self._start(0, self._directory / "seeder", "seeder")

    def start_leecher(self, role="leecher"):
        self._leechers = self._directory / role
        self._leechers.mkdir()
        return self._start(1, self._leechers, role)

    def is_complete(self, leecher):
        """Whether the leecher's file has the SHA-256 of the seeder's."""
        leecher.process.must_run()
        return self.torrent.is_complete_in(self._leechers)

    def leave(self):
        for peer in self._running:
            if peer.process.poll() is None:
                peer.leave()

    def stop(self):
        for peer in self._running:
            peer.stop()

    def _start(self, which, directory, role):
        log = self._directory / f"{role}.log"
        peer = self._clients[which](self._hosts[which], self._torrents[which], directory, log, self._trusted)
        self._running.append(peer)
        return peer


class Transfer(Pair):
    """A pair that finds each other through the tracker."""

    def __init__(self, network, directory, megabytes, trusted, clients, family, trackers):
        self._tracker = TRACKER_V4 if family == "ipv4" else TRACKER_V6
        urls = [url(protocol, self._tracker, path) for protocol, path in trackers]
        over = " and ".join(f"{protocol} {path}".strip() for protocol, path in trackers)
        # Not a whole number of pieces.
        size = megabytes * MEGABYTE + 4321
        names = " to ".join(dict.fromkeys(client.name for client in clients))
        super().__init__(network, directory, f"{names} {family} {over}", clients, family, size, trusted, *urls)
        self._is_webrtc = trackers[0][0] in WEBRTC

    def attempt(self):
        tracker = (WebSocket if self._is_webrtc else Client)(self._tracker, PORT)
        deadline = time.monotonic() + DEADLINE

        def seconds_left():
            return max(0.1, deadline - time.monotonic())

        def counts():
            # A lost reply is asked for again by the next call.
            try:
                # An id expires during a transfer.
                if not self._is_webrtc:
                    tracker.connect()
                return tracker.scrape(self.torrent.info_hash)
            except TimeoutError:
                return (0, 0, 0)

        try:
            if counts() != (0, 0, 0):
                raise Failure(f"a new swarm has {counts()}")
            seeder = self.start_seeder()
            poll("the seeder in the tracker's scrape", lambda: counts()[0] == 1, seconds_left())
            leecher = self.start_leecher()
            again = ""
            try:
                self._wait_for_file(leecher, min(STALLED, seconds_left()))
            except Failure as stall:
                poll("both peers in the tracker's scrape", lambda: counts()[::2] == (1, 1), seconds_left())
                again = f", at the second start: {stall}"
                leecher.stop()
                leecher = self.start_leecher("second-leecher")
                self._wait_for_file(leecher, seconds_left())
            # The reference counts no downloads, and a swarm of WebRTC peers forgets them with its last peer.
            at, number, after = (0, 2, 0) if self._is_webrtc else (1, 1, 1)
            poll("`completed` in the tracker's scrape", lambda: counts()[at] == number, seconds_left())
            self.leave()
            poll("an empty swarm in the tracker's scrape", lambda: counts() == (0, after, 0), seconds_left())
            return f"{self.torrent.size / MEGABYTE:.1f} MB, sha256 {self.torrent.sha256[:12]}{again}"
        except Failure as failure:
            raise Failure(f"{failure}\n{self._logs()}") from None
        finally:
            self.stop()
            tracker.close()

    def _wait_for_file(self, leecher, seconds):
        poll("the seeder's file at the leecher", lambda: self.is_complete(leecher), seconds, every=0.1)

    def _logs(self):
        return "\n".join(f"--- {p.process.log}\n{p.process.tail()}" for p in self._running)


class Control(Pair):
    """A pair whose leecher gets no peers of a tracker: the control that transfers depend on the tracker."""

    def __init__(self, network, directory, client, title, trusted, *urls):
        super().__init__(
            network, directory, f"{client.name} {title}", [client, client], "ipv4", MEGABYTE, trusted, *urls)
        self.transfers_are_done = threading.Event()

    def attempt(self):
        least = time.monotonic() + CONTROL
        self.start_seeder()
        leecher = self.start_leecher()
        try:
            while not self.transfers_are_done.wait(0.2) or time.monotonic() < least:
                if self.is_complete(leecher):
                    raise Failure("the file was transferred")
            return "transferred nothing"
        finally:
            # On SIGTERM the clients would wait for a reply of the tracker.
            for peer in self._running:
                peer.process.stop(signal.SIGKILL)


class Announces(Attempt):
    """The cases of the tests of bittorrent-tracker's client."""

    def __init__(self, network, directory, trusted, protocol):
        self.title = f"{ANNOUNCER} {protocol}"
        self._log = directory / f"{ANNOUNCER}-{protocol}.log"
        self._command = network.host("ipv4").command(
            "env", f"NODE_EXTRA_CA_CERTS={trusted}", "node", ROOT / "scripts" / "clients" / "announces.mjs",
            os.environ["BITTORRENT_TRACKER"], url(protocol, TRACKER_V4))

    def attempt(self):
        process = Process(ANNOUNCER, self._command, self._log)
        poll("the end of its cases", lambda: process.poll() is not None, DEADLINE)
        if process.returncode != 0:
            raise Failure(process.tail())
        return process.tail().splitlines()[-1]


class Load(Attempt):
    """`onrush-load ws` from its construction to the attempt, with every message right."""

    title = "the load beside them"

    def __init__(self, network, directory, program):
        self._report = directory / "load.json"
        command = (program, "ws", *LOAD, f"--target={url('ws', TRACKER_V4)}", f"--json={self._report}")
        self._process = Process("onrush-load", network.host("ipv4").command(*command), directory / "load.log")

    def attempt(self):
        self._process.must_run()
        # As Ctrl-C: it reports, and exits with 1 where a message was wrong, with 4 where requests were lost.
        code = self._process.stop(signal.SIGINT)
        if code != 0:
            raise Failure(f"exit code {code}\n{self._process.tail()}")
        report = json.loads(self._report.read_text())
        right = sum(kind["right"] for kind in report["kinds"])
        offers, answers = (report["ws"][of]["arrived"] for of in ("offers", "answers"))
        if not (right and offers and answers):
            raise Failure(f"{right} replies, {offers} offers, {answers} answers\n{self._process.tail()}")
        return f"{right} replies, {offers} offers and {answers} answers in {report['seconds']:.0f} s, all right"


class Taken(Attempt):
    """The requests came by AF_XDP."""

    title = "requests by AF_XDP"

    def __init__(self, daemon):
        self._daemon = daemon
        self.run()

    def attempt(self):
        text = self._daemon.metrics()
        counts = re.findall(r"(?m)^onrush_xdp_queue_received_datagrams_total\{[^}]*\} (\d+)", text)
        taken = sum(map(int, counts))
        if not taken:
            raise Failure("\n".join(line for line in text.splitlines() if line.startswith("onrush_xdp")))
        return f"{taken} datagrams"


class CleanExit(Attempt):
    """The tracker exits with 0 on SIGTERM after all transfers."""

    title = "the tracker exits on SIGTERM"

    def __init__(self, daemon):
        self._daemon = daemon
        self.run()

    def attempt(self):
        self._daemon.process.must_run()
        code = self._daemon.process.stop()
        if code != 0:
            raise Failure(f"exit code {code}\n{self._daemon.process.tail()}")
        return "exit code 0"


if __name__ == "__main__":
    try:
        sys.exit(main())
    except Failure as failure:
        print(f"FAILED  {failure}\n0 passed, 1 failed")
        sys.exit(1)

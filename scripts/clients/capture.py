"""Records the packets of real clients to a UDP tracker as test fixtures.

Each client joins a swarm on a small recording tracker, downloads a file, announces again and leaves, with and without a
path in the tracker's URL, over IPv4 and, where the client supports it, IPv6. One datagram of each kind is written to a
file per client in crates/proto/tests/it/packets: its bytes, and its fields as parsed by this script, which shares no code
with the parser under test.

Run it to cover a new version of a client; the files are kept in git.
"""

import argparse
import struct
import sys
import threading

from install import install
from network import SCRATCH, TRACKER_V4, TRACKER_V6, Network, run_isolated
from peers import CLIENTS, PORT
from places import ROOT
from processes import Failure, poll
from record import Recorder
from torrent import Torrent
from udp import MAGIC

PACKETS = ROOT / "crates" / "proto" / "tests" / "it" / "packets"
TRACKER_PORT = 6969
PATH = "/announce/abc?x=1"
SIZE = (1 << 20) + 4321
EVENTS = {0: "none", 1: "completed", 2: "started", 3: "stopped", 4: "paused"}
# Families over which a client supports UDP trackers.
FAMILIES = {"libtorrent": ("ipv4", "ipv6"), "transmission": ("ipv4",), "aria2": ("ipv4",)}
DEADLINE = 200


def main():
    parser = argparse.ArgumentParser(
        prog="scripts/capture-clients",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--only", action="append", choices=list(FAMILIES), help="this client (repeatable)")
    clients = parser.parse_args().only or list(FAMILIES)
    install(clients)
    return run_isolated(lambda: capture(clients))


def capture(clients):
    network = Network()
    recorder = Recorder([TRACKER_V4, TRACKER_V6], TRACKER_PORT, interval=2)
    plan = [
        Scenario(network, recorder, CLIENTS[client], family, path)
        for client in clients
        for family in FAMILIES[client]
        for path in ("", PATH)
    ]
    threads = [threading.Thread(target=scenario.run) for scenario in plan]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    recorder.stop()
    failures = [f"{scenario.title}: {scenario.failure}" for scenario in plan if scenario.failure]
    if failures:
        raise Failure("\n".join(failures))
    PACKETS.mkdir(parents=True, exist_ok=True)
    for client in clients:
        packets = [packet for each in plan if each.client.name == client for packet in each.fixtures()]
        write(CLIENTS[client], packets)
        print(f"{len(packets)} datagrams of {client} {CLIENTS[client].version()}")
    return 0


class Scenario:
    """A seeder and a leecher of one client; the requests of the leecher from its start to its end."""

    failure = None

    def __init__(self, network, recorder, client, family, path):
        self.client, self._family, self._path, self._recorder = client, family, path, recorder
        self.title = f"{client.name}-{family}{'-path' if path else ''}"
        self._directory = SCRATCH / self.title
        host = TRACKER_V4 if family == "ipv4" else f"[{TRACKER_V6}]"
        url = f"udp://{host}:{TRACKER_PORT}{path}"
        self._torrent = Torrent(self._directory / "seeder", "file.bin", SIZE, url)
        self._another = Torrent(self._directory / "another", "another.bin", 100_000, url)
        self._hosts = {role: network.host(family) for role in ("seeder", "leecher", "partial")}
        self._caught = {}

    def run(self):
        running = []
        try:
            self._exchange(running)
        except Exception as error:
            self.failure = "\n".join([repr(error), *(peer.process.tail() for peer in running)])
        finally:
            for peer in running:
                peer.stop()

    def _exchange(self, running):
        options = {}
        if self.client.name == "aria2":
            options["interval"] = 2
        if self.client.name == "transmission":
            options["also"] = [self._another]  # so that it scrapes two hashes at once
        self._start(running, "seeder", {})
        self._catch("seeder", "announce", 2, as_name="started-as-seeder")
        leecher = self._start(running, "leecher", options)
        self._catch("leecher", "connect")
        self._catch("leecher", "announce", 2)
        self._catch("leecher", "announce", 1)
        if self.client.name == "libtorrent":
            leecher.reannounce()
        self._catch("leecher", "announce", 0)
        if self.client.name == "libtorrent":
            leecher.scrape()
        if self.client.name != "aria2":  # aria2 never scrapes
            self._catch("leecher", "scrape")
        leecher.stop()
        self._catch("leecher", "announce", 3)
        if self.client.name == "libtorrent":
            partial = self._start(running, "partial", {})
            partial.skip()
            self._catch("partial", "announce", 4)

    def _start(self, running, role, options):
        directory = self._directory / role
        directory.mkdir(exist_ok=True)
        log = self._directory / f"{role}.log"
        peer = self.client(self._hosts[role], self._torrent, directory, log, **options)
        running.append(peer)
        return peer

    def _catch(self, role, kind, event=None, as_name=""):
        """Waits for a datagram of this kind, checks its known fields and keeps it."""
        name = EVENTS[event] if kind == "announce" else kind
        wanted = event, self._torrent.info_hash.hex()

        def found():
            for data in self._recorder.packets(self._hosts[role].address):
                fields = read(data)
                # The order of hashes in a scrape is the client's.
                if fields["kind"] == kind and (kind != "announce" or (fields["event"], fields["info_hash"]) == wanted):
                    return data

        packet = poll(f"{name} of the {role}", found, DEADLINE)
        if kind == "announce":
            self._check(packet, event, role)
        self._caught[as_name or name] = packet

    def _check(self, packet, event, role):
        fields = read_announce(packet)
        known = {"info_hash": self._torrent.info_hash.hex(), "port": PORT}
        if event in (1, 2):
            known["left"] = 0 if event == 1 or role == "seeder" else SIZE
        for name, value in known.items():
            if fields[name] != value:
                raise Failure(f"{name} is {fields[name]}, not {value}: {packet.hex()}")
        # For a URL without a path, libtorrent sends the path "/".
        expected = (self._path or "/") if self.client.name == "libtorrent" else ""
        if fields["url"] != expected:
            raise Failure(f"the URL data is {fields['url']}, not {expected}")

    def fixtures(self):
        """The kept datagrams as lines of TOML."""
        for name, packet in self._caught.items():
            yield f"{self.title}-{name}", packet


def read(data):
    """The fields of a datagram, in the order of the fixture file."""
    action = struct.unpack(">I", data[8:12])[0]
    if action == 0:
        magic, _, transaction_id = struct.unpack(">QII", data[:16])
        if magic != MAGIC:
            raise Failure(f"a connect without the magic number: {data.hex()}")
        return {"kind": "connect", "transaction_id": transaction_id, "trailing": data[16:].hex()}
    if action == 2:
        connection_id, _, transaction_id = struct.unpack(">8sII", data[:16])
        hashes = [data[at : at + 20].hex() for at in range(16, len(data) - 19, 20)]
        return {
            "kind": "scrape",
            "connection_id": connection_id.hex(),
            "transaction_id": transaction_id,
            "info_hashes": hashes,
        }
    return read_announce(data)


def read_announce(data):
    names = "connection_id action transaction_id info_hash peer_id downloaded left uploaded event ip key num_want port"
    values = struct.unpack(">8sII20s20sQQQIIIiH", data[:98])
    fields = {"kind": "announce"}
    for name, value in zip(names.split(), values):
        if name != "action":
            fields[name] = value.hex() if isinstance(value, bytes) else value
    fields["trailing"] = data[98:].hex()
    fields["url"] = url_data(data[98:])
    return fields


def url_data(options):
    """The path and query in BEP 41's options."""
    url = b""
    while options and options[0] != 0:
        if options[0] == 1:
            options = options[1:]
            continue
        if len(options) < 2 or len(options) < 2 + options[1]:
            break
        if options[0] == 2:
            url += options[2 : 2 + options[1]]
        options = options[2 + options[1] :]
    return url.decode()


def write(client, packets):
    lines = [
        f"# Packets of {client.name} {client.version()} to a UDP tracker, recorded by scripts/capture-clients.",
        "# `hex` is the datagram; the other keys are its fields, parsed by that script.",
        "",
        f'client = "{client.name}"',
        f'version = "{client.version()}"',
    ]
    for name, data in packets:
        lines += ["", "[[packet]]", f'name = "{name}"']
        for key, value in read(data).items():
            if isinstance(value, list):
                value = "[" + ", ".join(f'"{each}"' for each in value) + "]"
            elif isinstance(value, str):
                value = f'"{value}"'
            lines.append(f"{key} = {value}")
        lines.append(f'hex = "{data.hex()}"')
    (PACKETS / f"{client.name}.toml").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    try:
        sys.exit(main())
    except Failure as failure:
        print(f"capture-clients: {failure}", file=sys.stderr)
        sys.exit(1)

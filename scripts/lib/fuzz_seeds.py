#!/usr/bin/env python3
"""Writes the first inputs of fuzz targets: fuzz_seeds.py DIRECTORY, one subdirectory per target.

Packets that real clients have sent are inputs of `request` and, with valid ids, of `intake`; the example configuration
and its sections are inputs of `config`. A stop and two peers are an input of `delta`. The announces and scrapes among
the packets are inputs of `http_query` and `http_head` too, as the same requests over HTTP. Headers and fields with which
a proxy names a client are inputs of `http_proxy`. Messages of clients of WebTorrent are inputs of
`webtorrent_message`, those of trackers of `webtorrent_reply`. A session description is one of `transport_descriptions`.
"""

import pathlib
import struct
import sys
import tomllib
import urllib.parse

ROOT = pathlib.Path(__file__).resolve().parents[2]
PACKETS = ROOT / "crates/proto/tests/it/packets"
CONFIG = ROOT / "config/onrush.toml"
# A datagram of `intake` begins with its source and flags, a pause, and its length in units of eight bytes.
WITH_ID = 0x08
MAX_LENGTH = 8 * 255
# A request over HTTP behind its target.
HEAD_END = b" HTTP/1.1\r\nHost: tracker.example\r\nUser-Agent: fuzz/1\r\nConnection: close\r\n\r\n"
# What proxies send: PROXY headers of both versions, and values of fields.
OF_PROXIES = [
    b"PROXY TCP4 198.51.100.7 192.0.2.1 40000 6969\r\n",
    b"PROXY TCP6 2001:db8::7 2001:db8::1 40000 6969\r\n",
    b"PROXY UNKNOWN\r\n",
    b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c" + bytes(range(12)),
    b"\r\n\r\n\0\r\nQUIT\n\x21\x21\0\x27" + bytes(range(39)),
    b"\r\n\r\n\0\r\nQUIT\n\x20\0\0\0",
    b"203.0.113.9, [2001:db8::1]:443\n::ffff:198.51.100.7, 192.0.2.9:80",
    b'for=203.0.113.9;host="a\\", for=b"\nfor="[2001:db8::1]:_x";proto=https, by=_y; For=unknown',
]
# What trackers answer over HTTP: heads of each framing, and bodies.
OF_TRACKERS = [
    b"HTTP/1.1 200 OK\r\nContent-Length: 27\r\n\r\nd8:intervali1800e5:peers0:e",
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nd5:\r\n0\r\n\r\n",
    b"HTTP/1.0 404 Not Found\r\n\r\n404",
    b"d8:completei1e10:incompletei2e8:intervali9e5:peersld2:ip7:1.2.3.44:porti9eeee",
    b"d8:completei1e10:incompletei2e8:intervali9e5:peers0:6:peers618:" + bytes(range(32, 50)) + b"e",
    b"d5:filesd20:abcdefghijklmnopqrstd8:completei1e10:downloadedi2e10:incompletei3eeee",
    b"d14:failure reason4:busy8:retry ini2ee",
]
# What clients of WebTorrent send: an announce with offers, an answer, and scrapes.
DESCRIPTION = '{"type":"offer","sdp":"v=0\\r\\n"}'
OF_PEER = '"info_hash":"\\u0001bcdefghij\\"\\\\ÿlmnopqr","peer_id":"-WW0208-abcdefghijkl"'
OF_OFFER = '"offer_id":"0123456789abcdefghi\\u0080"'
OF_WEBTORRENT = [
    f'{{"action":"announce",{OF_PEER},"left":null,"event":"started","numwant":2,"offers":'
    f'[{{{OF_OFFER},"offer":{DESCRIPTION}}},{{"offer":{DESCRIPTION},{OF_OFFER}}}]}}',
    f'{{"action":"announce",{OF_PEER},{OF_OFFER},"to_peer_id":"-WW0208-abcdefghijkl","answer":{DESCRIPTION}}}',
    f'{{"action":"scrape",{OF_PEER}}}',
    '{"action":"scrape","info_hash":["abcdefghijklmnopqrst","abcdefghijklmnopqrst"]}',
]
# What trackers of WebTorrent send.
BY_WEBTORRENT = [
    f'{{"action":"announce",{OF_PEER},"interval":120,"complete":1,"incomplete":2}}',
    f'{{"action":"announce",{OF_PEER},{OF_OFFER},"offer":{DESCRIPTION}}}',
    f'{{"action":"announce",{OF_PEER},{OF_OFFER},"answer":{DESCRIPTION.replace("offer", "answer")}}}',
    '{"action":"scrape","files":{"abcdefghijklmnopqrst":{"complete":1,"incomplete":2,"downloaded":3}}}',
    f'{{"action":"announce",{OF_PEER},"failure reason":"busy","retry in":2}}',
]
# A description of a connection with data channels.
SDP = (
    b"v=0\r\na=ice-ufrag:abcd\r\na=ice-pwd:0123456789abcdef\r\na=fingerprint:sha-256 " + b":".join([b"0A"] * 32)
    + b"\r\na=setup:actpass\r\na=candidate:1 1 udp 2130706431 127.0.0.1 9 typ host\r\n"
)
# The names of events over HTTP, by their numbers over UDP.
EVENTS = ["", "completed", "started", "stopped", "paused"]


def of_intake(placement, datagrams):
    """An input of `intake`: each datagram from two sources, with their ids."""
    seed = bytes([placement])
    for datagram in datagrams:
        datagram += bytes(-len(datagram) % 8)
        if len(datagram) <= MAX_LENGTH:
            for source in (0, 2):
                seed += bytes([source | WITH_ID, 0x10, len(datagram) // 8]) + datagram
    return seed


def of_delta():
    """An input of `delta`: a stop, and a swarm with that peer and another one."""
    name, peer, other = bytes(range(20)), b"\xc0\0\2\1\x1a\xe1", b"\xc0\0\2\2\x1a\xe1"
    stop = name + b"\4" + peer + struct.pack(">2I", 1, 9)
    swarm = name + struct.pack(">3I", 1, 2, 0) + peer + b"\0\2" + other + b"\0\4"
    return struct.pack(">I", 1) + stop + swarm


def of_http(packet):
    """An input of `http_query`: the target of the same request over HTTP; None for a connect."""
    if packet["kind"] == "announce":
        query = [("info_hash", bytes.fromhex(packet["info_hash"])), ("peer_id", bytes.fromhex(packet["peer_id"]))]
        query += [(key, packet[key]) for key in ("port", "uploaded", "downloaded", "left")]
        query += [("event", EVENTS[packet["event"]]), ("numwant", packet["num_want"]), ("compact", 1)]
    elif packet["kind"] == "scrape":
        query = [("info_hash", bytes.fromhex(info_hash)) for info_hash in packet["info_hashes"]]
    else:
        return None
    return f"/{packet['kind']}?{urllib.parse.urlencode(query, quote_via=urllib.parse.quote)}".encode()


def seeds():
    """Every input as (target, name, bytes)."""
    for file in sorted(PACKETS.glob("*.toml")):
        recorded = tomllib.loads(file.read_text())["packet"]
        for number, target in enumerate(filter(None, map(of_http, recorded))):
            yield "http_query", f"{file.stem}-{number}", target
            yield "http_head", f"{file.stem}-{number}", b"GET " + target + HEAD_END
        packets = [bytes.fromhex(packet["hex"]) for packet in recorded]
        for number, datagram in enumerate(packets):
            yield "request", f"{file.stem}-{number}", datagram
        for placement in (0, 1):
            yield "intake", f"{file.stem}-{placement}", of_intake(placement, packets)
    for number, reply in enumerate(OF_TRACKERS):
        yield "http_reply", f"{number}", reply
    for number, sent in enumerate(OF_PROXIES):
        yield "http_proxy", f"{number}", sent
    for number, message in enumerate(map(str.encode, OF_WEBTORRENT)):
        yield "webtorrent_message", f"{number}", message
    for number, message in enumerate(map(str.encode, BY_WEBTORRENT)):
        yield "webtorrent_reply", f"{number}", message
    yield "transport_descriptions", "offer", SDP
    yield "delta", "stop-and-peers", of_delta()
    text = CONFIG.read_text()
    yield "config", "example", text.encode()
    # The keys in force instead of comments, section by section: inputs are short.
    for number, section in enumerate(text.split("\n[")[1:]):
        lines = [line[2:] if line.startswith("# ") and "=" in line else line for line in section.splitlines()]
        yield "config", f"section-{number}", ("[" + "\n".join(lines)).encode()


def main(directory):
    for target, name, content in seeds():
        path = directory / target / f"seed-{name}"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(pathlib.Path(sys.argv[1]))

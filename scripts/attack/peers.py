"""Peers that announce one by one and look at the lists and counts that they get."""

import contextlib
import ipaddress
import itertools
import os
import socket
import struct
import time

import place
import udp

COMPLETED, STARTED, STOPPED = 1, 2, 3
# Info hashes in a scrape that fits into an Ethernet frame.
SCRAPED = 70
# Of linux/in.h: the socket module lacks it.
IP_PKTINFO = 8


def hashes(count):
    """New info hashes."""
    return [os.urandom(20) for _ in range(count)]


def sources(block, count):
    """Sources of a block at equal distances."""
    net = ipaddress.ip_network(block)
    return [str(net[net.num_addresses // count * number]) for number in range(count)]


def networks(count, version=4):
    """Honest sources of this host, each of another /24 or /48, in 32 blocks of /16 or /32."""
    if version == 4:
        return [f"10.{96 + number % 32}.{number // 32}.1" for number in range(count)]
    return [f"fd90:{number % 32:x}:{number // 32:x}::1" for number in range(count)]


@contextlib.contextmanager
def peer(ip):
    """A client with a source address and a connection id."""
    with udp.Client(place.V6 if ":" in ip else place.V4, place.PORT, source=ip, timeout=2, seconds=10) as client:
        client.connect()
        yield client


class Crowd:
    """Any number of proven sources behind a socket; each datagram names its own one (ip(7), ipv6(7))."""

    # Requests in flight at a time: fewer than the smallest receive buffer holds.
    WINDOW = 64

    def __init__(self, version):
        self.family, self.level, self.option, wanted, self.info, self.at, self.to = {
            4: (socket.AF_INET, socket.IPPROTO_IP, IP_PKTINFO, IP_PKTINFO, "4x4s4x", 8, place.V4),
            6: (socket.AF_INET6, socket.IPPROTO_IPV6, socket.IPV6_PKTINFO, socket.IPV6_RECVPKTINFO, "16s4x", 0,
                place.V6),
        }[version]
        self.socket = socket.socket(self.family, socket.SOCK_DGRAM)
        self.socket.settimeout(1)
        self.socket.setsockopt(self.level, wanted, 1)
        self.ids = {}

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.socket.close()

    def announce(self, announces):
        """Sends announces, each a source, an info hash, a port and what else differs, until all are answered."""
        announces = iter(announces)
        while window := list(itertools.islice(announces, self.WINDOW)):
            new = {source for source, *_ in window} - self.ids.keys()
            replies = self.exchange([(source, udp.CONNECT) for source in new])
            self.ids.update((source, reply[8:]) for source, reply in zip(new, replies))
            self.exchange([(source, udp.announce(self.ids[source], info_hash, port, wanted=0, **more))
                           for source, info_hash, port, more in window])

    def exchange(self, requests):
        """The replies to requests of sources; what is not answered is sent again every second, for ten seconds."""
        missing = {os.urandom(4): request for request in requests}
        numbers, replies = list(missing), {}
        for _ in range(10):
            for number, (source, request) in missing.items():
                info = struct.pack(self.info, socket.inet_pton(self.family, source))
                self.socket.sendmsg([request[:12] + number + request[16:]], [(self.level, self.option, info)], 0,
                                    (self.to, place.PORT))
            with contextlib.suppress(TimeoutError):
                while missing:
                    reply, ((_, _, info),), *_ = self.socket.recvmsg(2048, 64)
                    # The source of the request, so that no other one gets its reply.
                    found = missing.get(reply[4:8])
                    own = len(socket.inet_pton(self.family, self.to))
                    if found and socket.inet_pton(self.family, found[0]) == info[self.at:self.at + own]:
                        assert reply[:4] == found[1][8:12], reply
                        replies[reply[4:8]] = reply
                        del missing[reply[4:8]]
            if not missing:
                return [replies[number] for number in numbers]
        raise TimeoutError("the tracker does not answer")


def counts(ip, info_hashes):
    """(seeders, completed, leechers) of each info hash."""
    with peer(ip) as client:
        for first in range(0, len(info_hashes), SCRAPED):
            found = iter(client.scrape(*info_hashes[first:first + SCRAPED]))
            yield from zip(found, found, found)


def meet():
    """Whether a peer is handed to the second one of a new swarm."""
    info_hash = os.urandom(20)
    with peer("10.79.1.1") as first, peer("10.79.1.2") as second:
        first.announce(info_hash, 6881)
        return "10.79.1.1" in [ip for ip, _ in second.announce(info_hash, 6881)[3]]


def honest_share(honest, attackers, ports):
    """The share of honest peers, each of another network, in their own lists, where each of the attackers announces
    many ports. Half of all are seeders."""
    info_hash = os.urandom(20)
    addresses = networks(honest)
    with contextlib.ExitStack() as stack, Crowd(4) as crowd:
        clients = [stack.enter_context(peer(address)) for address in addresses]
        for number, client in enumerate(clients):
            client.announce(info_hash, 6881, left=number % 2)
        # From port 2 on; port 1 means that a peer cannot be reached.
        crowd.announce((attacker, info_hash, port, dict(left=port % 2))
                       for attacker in attackers for port in range(2, 2 + ports))
        lists = [client.announce(info_hash, 6881)[3] for client in clients[1::2]]
    found = [ip for listed in lists for ip, _ in listed]
    return sum(ip in addresses for ip in found) / max(1, len(found))


def crowded(version, block, count):
    """(kept, stored, minutes): the share of its 800 peers that a source keeps in a full tracker, and of 500 newcomers
    of other networks those that are stored, after two announces of each of `count` sources of a block; and the number
    of minutes of the tracker's clock that the announces of others fall into, at most."""
    box, *newcomers = networks(501, version)
    own, new = hashes(800), hashes(500)
    with Crowd(version) as crowd:
        crowd.announce((box, info_hash, 6881, {}) for info_hash in own)
        began = time.monotonic()
        for _ in range(2):
            crowd.announce((source, os.urandom(20), 6881, {}) for source in sources(block, count))
        crowd.announce((source, info_hash, 6881, {}) for source, info_hash in zip(newcomers, new))
    minutes = int((time.monotonic() - began) / 60) + 2
    return *(sum(leechers for *_, leechers in counts(box, of)) / len(of) for of in (own, new)), minutes


def kept_counts(attackers, swarms):
    """(kept, evicted): of 70 idle swarms with a `completed` of 3, those that keep it, and the number of idle swarms of
    the attackers that have gone, after each of these swarms had its `completed` counted three times by one source."""
    honest, foreign = hashes(70), hashes(swarms)
    with Crowd(4) as crowd:
        for source in networks(3):
            for event, left in [(STARTED, 1), (COMPLETED, 0), (STOPPED, 0)]:
                crowd.announce((source, info_hash, 6881, dict(event=event, left=left)) for info_hash in honest)
        for event, left in [*[(STARTED, 1), (COMPLETED, 0)] * 3, (STOPPED, 0)]:
            crowd.announce((attacker, info_hash, 6881, dict(event=event, left=left))
                           for attacker, info_hash in zip(itertools.cycle(attackers), foreign))
    kept, others = ([completed for _, completed, _ in counts("10.79.1.1", of)] for of in (honest, foreign))
    return kept.count(3), others.count(0)

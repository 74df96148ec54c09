"""Peers that announce one by one and look at the lists that they get."""

import contextlib
import os
import socket
import struct

import place

TIMEOUT = 2
TRIES = 5


class Peer:
    """A client with a source address and a connection id."""

    def __init__(self, ip):
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.socket.settimeout(TIMEOUT)
        self.socket.bind((ip, 0))
        self.socket.connect((place.V4, place.PORT))
        # Of the last request: a late reply to an earlier one is told apart.
        self.transaction = 1
        reply, = self.exchange(struct.pack(">QII", 0x41727101980, 0, self.transaction))
        self.id = reply[8:16]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.socket.close()

    def exchange(self, *requests):
        """The replies, by transaction. Requests without one are sent again."""
        missing, replies = {request[12:16]: request for request in requests}, {}
        for _ in range(TRIES):
            for request in missing.values():
                self.socket.send(request)
            try:
                while missing:
                    reply = self.socket.recv(4096)
                    if missing.pop(reply[4:8], None):
                        replies[reply[4:8]] = reply
            except TimeoutError:
                continue
            return list(replies.values())
        raise RuntimeError("the tracker does not answer")

    def request(self, info_hash, port, left=1, wanted=50):
        peer_id = b"-OL0000-attack" + struct.pack(">IH", 0, port)
        self.transaction += 1
        return self.id + struct.pack(">II", 1, self.transaction) + info_hash + peer_id + struct.pack(
            ">QQQIIIiH", 0, left, 0, 2, 0, 7, wanted, port)

    def announce(self, info_hash, port, **more):
        """The addresses of the listed peers."""
        reply, = self.exchange(self.request(info_hash, port, **more))
        return [socket.inet_ntoa(reply[at:at + 4]) for at in range(20, len(reply), 6)]


def meet():
    """Whether a peer is handed to the second one of a new swarm."""
    info_hash = os.urandom(20)
    with Peer("10.79.1.1") as first, Peer("10.79.1.2") as second:
        first.announce(info_hash, 6881)
        return "10.79.1.1" in second.announce(info_hash, 6881)


def honest_share(honest, ports):
    """The share of honest peers in their own lists, where one address announces many ports, half of them as seeders."""
    info_hash = os.urandom(20)
    addresses = {f"10.79.0.{1 + number}" for number in range(honest)}
    with contextlib.ExitStack() as stack:
        clients = [stack.enter_context(Peer(address)) for address in sorted(addresses)]
        for number, client in enumerate(clients):
            client.announce(info_hash, 6881, left=number % 2)
        attacker = stack.enter_context(Peer("10.80.0.1"))
        # Ports 2 to 65535; port 1 means that a peer cannot be reached.
        for first in range(2, 2 + ports, 50):
            batch = range(first, min(first + 50, 2 + ports))
            attacker.exchange(*[attacker.request(info_hash, port, left=port % 2, wanted=0) for port in batch])
        listed = [ip for client in clients[1::2] for ip in client.announce(info_hash, 6881)]
    return sum(ip in addresses for ip in listed) / max(1, len(listed))

"""Peers that announce one by one and look at the lists that they get."""

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
        self.id = self.exchange(struct.pack(">QII", 0x41727101980, 0, 1))[8:16]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.socket.close()

    def exchange(self, request):
        for _ in range(TRIES):
            self.socket.send(request)
            try:
                return self.socket.recv(4096)
            except TimeoutError:
                continue
        raise RuntimeError("the tracker does not answer")

    def request(self, info_hash, port, left=1, wanted=50):
        peer_id = b"-OL0000-attack" + struct.pack(">IH", 0, port)
        return self.id + struct.pack(">II", 1, 2) + info_hash + peer_id + struct.pack(
            ">QQQIIIiH", 0, left, 0, 2, 0, 7, wanted, port)

    def announce(self, info_hash, port, **more):
        """The addresses of the listed peers."""
        reply = self.exchange(self.request(info_hash, port, **more))
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
    addresses = [f"10.79.0.{1 + number}" for number in range(honest)]
    clients = [Peer(address) for address in addresses]
    for number, client in enumerate(clients):
        client.announce(info_hash, 6881, left=number % 2)
    with Peer("10.80.0.1") as attacker:
        # Ports 2 to 65535; port 1 means that a peer cannot be reached.
        for first in range(2, 2 + ports, 50):
            batch = range(first, min(first + 50, 2 + ports))
            for port in batch:
                attacker.socket.send(attacker.request(info_hash, port, left=port % 2, wanted=0))
            # Waits for the last reply of a batch, so that none is lost.
            for _ in batch:
                attacker.socket.recv(4096)
    listed = [ip for client in clients[1::2] for ip in client.announce(info_hash, 6881)]
    for client in clients:
        client.socket.close()
    known = set(addresses)
    return sum(ip in known for ip in listed) / max(1, len(listed))

"""Peers that announce one by one and look at the lists that they get."""

import contextlib
import os

import place
from udp import Client


def peer(ip):
    """A client with a source address and a connection id."""
    client = Client(place.V4, place.PORT, source=ip, timeout=2, seconds=10)
    client.connect()
    return client


def listed(client, info_hash, port, **more):
    """The addresses of the listed peers."""
    return [ip for ip, _ in client.announce(info_hash, port, **more)[3]]


def meet():
    """Whether a peer is handed to the second one of a new swarm."""
    info_hash = os.urandom(20)
    with peer("10.79.1.1") as first, peer("10.79.1.2") as second:
        first.announce(info_hash, 6881)
        return "10.79.1.1" in listed(second, info_hash, 6881)


def honest_share(honest, ports):
    """The share of honest peers in their own lists, where one address announces many ports, half of them as seeders."""
    info_hash = os.urandom(20)
    addresses = {f"10.79.0.{1 + number}" for number in range(honest)}
    with contextlib.ExitStack() as stack:
        clients = [stack.enter_context(peer(address)) for address in sorted(addresses)]
        for number, client in enumerate(clients):
            client.announce(info_hash, 6881, left=number % 2)
        attacker = stack.enter_context(peer("10.80.0.1"))
        # Ports 2 to 65535; port 1 means that a peer cannot be reached.
        for first in range(2, 2 + ports, 50):
            batch = range(first, min(first + 50, 2 + ports))
            attacker.exchange(*[attacker.request(info_hash, port, left=port % 2, wanted=0) for port in batch])
        found = [ip for client in clients[1::2] for ip in listed(client, info_hash, 6881)]
    return sum(ip in addresses for ip in found) / max(1, len(found))

"""A client of the UDP tracker protocol (BEP 15), for all scripts. Other hosts and namespaces run it as text."""

import os
import socket
import struct
import time

MAGIC = 0x41727101980
CONNECT = struct.pack(">QII", MAGIC, 0, 0)


def announce(connection_id, info_hash, port, left=1, event=2, wanted=50):
    """An announce as a datagram."""
    return connection_id + struct.pack(
        ">II20s20sQQQIIIiH", 1, 0, info_hash, b"-qB5000-abcdefghijkl", 0, left, 0, event, 0, 7, wanted, port)


class Client:
    """A client of the tracker at an address and port. A request that is not answered is sent again every `timeout`
    seconds, for `seconds` in all; then it raises TimeoutError."""

    def __init__(self, address, port, source="", timeout=1, seconds=0):
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        self.socket = socket.socket(family, socket.SOCK_DGRAM)
        self.socket.settimeout(timeout)
        self.socket.bind((source, 0))
        self.socket.connect((address, port))
        self.seconds, self.id = seconds, bytes(8)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        self.socket.close()

    def connect(self):
        """Gets the connection id of the requests that follow."""
        reply, = self.exchange(CONNECT)
        assert len(reply) == 16, reply
        self.id = reply[8:]

    def answers(self):
        """Whether a connect is answered."""
        try:
            self.connect()
        except TimeoutError:
            return False
        return True

    def request(self, info_hash, port, **more):
        """An announce as a datagram."""
        return announce(self.id, info_hash, port, **more)

    def announce(self, info_hash, port, **more):
        """(interval, leechers, seeders, [(address, port)])."""
        reply, = self.exchange(self.request(info_hash, port, **more))
        family, width = (self.socket.family, 4 if self.socket.family == socket.AF_INET else 16)
        peers = struct.iter_unpack(f">{width}sH", reply[20:])
        return *struct.unpack(">III", reply[8:20]), [(socket.inet_ntop(family, ip), port) for ip, port in peers]

    def scrape(self, *info_hashes):
        """(seeders, completed, leechers) of the first info hash, then of the others."""
        reply, = self.exchange(self.id + struct.pack(">II", 2, 0) + b"".join(info_hashes))
        return struct.unpack(f">{3 * len(info_hashes)}I", reply[8:])

    def exchange(self, *requests):
        """The replies to requests, which get transaction ids. A late reply to an earlier request is ignored."""
        numbers = [os.urandom(4) for _ in requests]
        missing = {number: request[:12] + number + request[16:] for number, request in zip(numbers, requests)}
        replies, end = {}, time.monotonic() + self.seconds
        while True:
            try:
                for request in missing.values():
                    self.socket.send(request)
                while missing:
                    reply = self.socket.recv(4096)
                    request = missing.pop(reply[4:8], None)
                    if request:
                        assert reply[:4] == request[8:12], reply
                        replies[reply[4:8]] = reply
                return [replies[number] for number in numbers]
            except TimeoutError:
                pass
            except ConnectionRefusedError:
                # The port is closed, perhaps not for long.
                time.sleep(0.05)
            if time.monotonic() >= end:
                raise TimeoutError("the tracker does not answer")

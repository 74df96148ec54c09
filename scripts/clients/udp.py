"""A minimal client of the UDP tracker protocol (BEP 15)."""

import os
import socket
import struct

MAGIC = 0x41727101980


class Client:
    """A client of the tracker at an address and port; a request times out after a second."""

    def __init__(self, address, port):
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        self._socket = socket.socket(family, socket.SOCK_DGRAM)
        self._socket.settimeout(1)
        self._socket.connect((address, port))

    def connect(self):
        """A connection id, or None without a reply."""
        reply = self._exchange(struct.pack(">QI", MAGIC, 0), b"")
        return reply[8:16] if reply and len(reply) == 16 else None

    def scrape(self, info_hash):
        """(seeders, completed, leechers) of a swarm, or None without a reply."""
        connection_id = self.connect()
        if connection_id is None:
            return None
        reply = self._exchange(connection_id + struct.pack(">I", 2), info_hash)
        return struct.unpack(">III", reply[8:20]) if reply and len(reply) == 20 else None

    def close(self):
        self._socket.close()

    def _exchange(self, head, rest):
        transaction_id = os.urandom(4)
        try:
            self._socket.send(head + transaction_id + rest)
            while True:
                reply = self._socket.recv(2048)
                if reply[4:8] == transaction_id:
                    return reply
        except (TimeoutError, ConnectionRefusedError):
            return None

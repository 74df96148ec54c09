"""A small UDP tracker that records every datagram it receives.

It replies with a connection id, the peers of a swarm, a short interval, and zeros for a scrape, so that clients continue.
"""

import os
import select
import socket
import struct
import threading
from collections import defaultdict

from udp import MAGIC


class Recorder:
    """Listens on addresses until `stop`."""

    def __init__(self, addresses, port, interval):
        self._interval = interval
        self._sockets = []
        for address in addresses:
            family = socket.AF_INET6 if ":" in address else socket.AF_INET
            listening = socket.socket(family, socket.SOCK_DGRAM)
            if family == socket.AF_INET6:
                listening.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            listening.bind((address, port))
            self._sockets.append(listening)
        self._packets = []
        self._swarms = defaultdict(dict)
        self._lock = threading.Lock()
        self._wake_reader, self._wake_writer = os.pipe()
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def stop(self):
        os.write(self._wake_writer, b"x")
        self._thread.join()
        for listening in self._sockets:
            listening.close()

    def packets(self, source):
        """The datagrams from an address, in order."""
        with self._lock:
            return [data for sender, data in self._packets if sender == source]

    def _serve(self):
        while True:
            readable, _, _ = select.select([*self._sockets, self._wake_reader], [], [])
            for ready in readable:
                if ready == self._wake_reader:
                    return
                data, name = ready.recvfrom(4096)
                with self._lock:
                    self._packets.append((name[0], data))
                reply = self._reply(data, name[0], ready.family)
                if reply:
                    ready.sendto(reply, name)

    def _reply(self, data, source, family):
        if len(data) < 16:
            return None
        action, transaction_id = struct.unpack(">I", data[8:12])[0], data[12:16]
        if action == 0 and data[:8] == struct.pack(">Q", MAGIC):
            return struct.pack(">I", 0) + transaction_id + os.urandom(8)
        if action == 1 and len(data) >= 98:
            return struct.pack(">I", 1) + transaction_id + self._announced(data, source, family)
        if action == 2:
            return struct.pack(">I", 2) + transaction_id + bytes(12 * ((len(data) - 16) // 20))
        return None

    def _announced(self, data, source, family):
        swarm = self._swarms[data[16:36], family]
        peer = socket.inet_pton(family, source) + data[96:98]
        left, event = struct.unpack(">Q", data[64:72])[0], struct.unpack(">I", data[80:84])[0]
        swarm.pop(peer, None)
        others = b"".join(swarm)
        if event != 3:
            swarm[peer] = left
        seeders = sum(1 for left in swarm.values() if left == 0)
        return struct.pack(">III", self._interval, len(swarm) - seeders, seeders) + others

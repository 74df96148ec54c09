"""A client of a WebTorrent tracker over WebSocket (RFC 6455), for all scripts."""

import json
import os
import socket
import struct

TEXT, PING, PONG = 1, 9, 10


class Client:
    """A client of the tracker at an address and port, by TLS with a `tls` context, which connects from the address `source`
    and sends `fields` with the upgrade. A failed request closes its connection, and the next one makes another. A tracker
    that is silent for `timeout` seconds raises TimeoutError."""

    def __init__(self, address, port, timeout=1, source=None, tls=None, fields=None):
        self.address, self.timeout, self._socket = (address, port), timeout, None
        self._source, self._tls, self._fields = source and (source, 0), tls, fields or {}

    def scrape(self, info_hash):
        """(seeders, completed, leechers) of the swarm."""
        key = info_hash.decode("latin-1")
        try:
            self.send({"action": "scrape", "info_hash": key})
            reply = self.receive()
        except OSError:
            self.close()
            raise
        assert reply["action"] == "scrape", reply
        counts = reply["files"][key]
        return counts["complete"], counts["downloaded"], counts["incomplete"]

    def send(self, message):
        """Sends a message, after the upgrade if there is no connection."""
        self._connect()
        self._send(TEXT, json.dumps(message).encode())

    def receive(self):
        """The next message; pings before it are answered."""
        while True:
            opcode, data = self._frame()
            if opcode == TEXT:
                return json.loads(data)

    def await_ping(self):
        """Answers a ping, which has to come before any message."""
        opcode, data = self._frame()
        if opcode != PING:
            raise ConnectionError(f"no ping: {data}")

    def close(self):
        if self._socket:
            self._socket.close()
            self._socket = None

    def _connect(self):
        if self._socket:
            return
        self._socket = socket.create_connection(self.address, self.timeout, self._source)
        if self._tls:
            self._socket = self._tls.wrap_socket(self._socket, server_hostname=self.address[0])
        self._input = self._socket.makefile("rb")
        fields = {
            "Host": "tracker", "Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "13",
            "Sec-WebSocket-Key": "AAAAAAAAAAAAAAAAAAAAAA==", **self._fields,
        }
        lines = ["GET / HTTP/1.1", *(f"{name}: {value}" for name, value in fields.items()), "", ""]
        self._socket.sendall("\r\n".join(lines).encode())
        status = self._input.readline()
        while self._input.readline().strip():
            pass
        if b" 101 " not in status:
            raise ConnectionError(f"no upgrade: {status}")

    def _send(self, opcode, data):
        """A frame, which a client has to mask."""
        mask = os.urandom(4)
        masked = bytes(byte ^ mask[at % 4] for at, byte in enumerate(data))
        assert len(data) < 1 << 16
        long = len(data) > 125
        length = struct.pack(">BH", 0x80 | 126, len(data)) if long else bytes([0x80 | len(data)])
        self._socket.sendall(bytes([0x80 | opcode]) + length + mask + masked)

    def _frame(self):
        """Opcode and data of the next frame. A ping is answered; any other than of a text is an error."""
        first, length = self._read(">BB")
        if length >= 126:
            length, = self._read(">H" if length == 126 else ">Q")
        data = self._input.read(length)
        opcode = first & 0x7f
        if opcode == PING:
            self._send(PONG, data)
        elif opcode != TEXT:
            raise ConnectionError(f"opcode {opcode:#x}: {data}")
        return opcode, data

    def _read(self, form):
        data = self._input.read(struct.calcsize(form))
        if len(data) < struct.calcsize(form):
            raise ConnectionError("the tracker has closed the connection")
        return struct.unpack(form, data)

"""Clients that keep the admin side busy, and others beside them."""

import contextlib
import http.client
import socket
import threading

import place

REQUEST = f"GET /stats.json HTTP/1.1\r\nHost: {place.V4}\r\n\r\n".encode()


class Pipelining:
    """Connections of these sources, `each` of them, for as long as a `with` lasts: they send requests without a pause,
    read 4096 bytes ten times a second, and return when they are closed."""

    def __init__(self, sources, each):
        self.connections = {(source, number): None for source in sources for number in range(each)}
        # Bytes of a request that was sent in part.
        self.sent = dict.fromkeys(self.connections, 0)
        self.busy, self.over = threading.Event(), threading.Event()
        # An interrupted script does not wait for it.
        self.thread = threading.Thread(target=self.run, daemon=True)

    def __enter__(self):
        self.thread.start()
        if not self.busy.wait(60):
            self.__exit__()
            raise RuntimeError("the connections were not served")
        return self

    def __exit__(self, *_):
        self.over.set()
        self.thread.join()

    def run(self):
        served = set()
        while not self.over.wait(0.1):
            for key, connection in self.connections.items():
                if self.over.is_set():
                    break
                try:
                    self.turn(key, connection or self.connect(key))
                    served.add(key)
                except BlockingIOError:
                    # Nothing to read yet.
                    pass
                except OSError:
                    self.close(key)
            if len(served) == len(self.connections):
                self.busy.set()
        for key in self.connections:
            self.close(key)

    def connect(self, key):
        connection = socket.create_connection((place.V4, place.ADMIN_PORT), 2, (key[0], 0))
        connection.setblocking(False)
        self.connections[key], self.sent[key] = connection, 0
        return connection

    def turn(self, key, connection):
        with contextlib.suppress(BlockingIOError):
            sent = connection.send((REQUEST * 200)[self.sent[key]:])
            self.sent[key] = (self.sent[key] + sent) % len(REQUEST)
        if not connection.recv(4096):
            raise ConnectionError("closed by the tracker")

    def close(self, key):
        if self.connections[key]:
            self.connections[key].close()
            self.connections[key] = None


def status(source, path):
    """The status of the response to a request on a connection of its own; None if the connection is closed, and a second one too."""
    for _ in range(2):
        connection = http.client.HTTPConnection(place.V4, place.ADMIN_PORT, 30, (source, 0))
        with contextlib.closing(connection), contextlib.suppress(ConnectionError):
            connection.request("GET", path)
            return connection.getresponse().status
    return None

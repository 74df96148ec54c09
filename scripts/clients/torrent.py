"""Random files and torrents of them (BEP 3), made without a client."""

import copy
import hashlib
import os

PIECE = 64 * 1024


class Torrent:
    """A file of random bytes in `directory`, and its .torrent for one tracker."""

    def __init__(self, directory, name, size, tracker):
        directory.mkdir(parents=True)
        self.name, self.size = name, size
        self.file = directory / name
        content = os.urandom(size)
        self.file.write_bytes(content)
        self.sha256 = hashlib.sha256(content).hexdigest()
        pieces = b"".join(
            hashlib.sha1(content[at : at + PIECE]).digest() for at in range(0, size, PIECE)
        )
        # A private torrent (BEP 27): peers come from the tracker, never from DHT, PEX or LSD.
        info = {"length": size, "name": name, "piece length": PIECE, "pieces": pieces, "private": 1}
        self.info_hash = hashlib.sha1(_bencode(info)).digest()
        self._info = info
        self.path = directory / f"{name}.torrent"
        self._write(tracker)

    def at(self, tracker):
        """The same torrent with another announce URL."""
        other = copy.copy(self)
        other.path = self.path.with_suffix(".other.torrent")
        other._write(tracker)
        return other

    def _write(self, tracker):
        self.tracker = tracker
        self.path.write_bytes(_bencode({"announce": tracker, "info": self._info}))

    def is_complete_in(self, directory):
        """Whether another directory has the file with the same content."""
        file = directory / self.name
        if not file.exists() or file.stat().st_size != self.size:
            return False
        return hashlib.sha256(file.read_bytes()).hexdigest() == self.sha256


def _bencode(value):
    if isinstance(value, int):
        return b"i%de" % value
    if isinstance(value, str):
        value = value.encode()
    if isinstance(value, bytes):
        return b"%d:%s" % (len(value), value)
    items = sorted(value.items())
    return b"d" + b"".join(_bencode(key) + _bencode(item) for key, item in items) + b"e"

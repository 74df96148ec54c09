"""Records the UDP traffic of one port on one interface as a pcap file, for Wireshark and tcpdump."""

import socket
import struct
import threading
import time

_ETH_P_ALL = 3


class Recording:
    """A recording from construction to `stop`."""

    def __init__(self, interface, port, path):
        self._port = struct.pack(">H", port)
        self._file = open(path, "wb")
        self._file.write(struct.pack("=IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 65535, 1))
        self._socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(_ETH_P_ALL))
        self._socket.bind((interface, 0))
        self._socket.settimeout(0.2)
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._record)
        self._thread.start()

    def stop(self):
        self._ends.set()
        self._thread.join()
        self._socket.close()
        self._file.close()

    def _record(self):
        while not self._ends.is_set():
            try:
                frame = self._socket.recv(65535)
            except TimeoutError:
                continue
            if self._is_ours(frame):
                now = time.time_ns()
                head = (now // 10**9, now % 10**9 // 1000, len(frame), len(frame))
                self._file.write(struct.pack("=IIII", *head) + frame)

    def _is_ours(self, frame):
        if frame[12:14] == b"\x08\x00" and frame[23] == socket.IPPROTO_UDP:
            udp = 14 + 4 * (frame[14] & 15)
        elif frame[12:14] == b"\x86\xdd" and frame[20] == socket.IPPROTO_UDP:
            udp = 14 + 40
        else:
            return False
        return self._port in (frame[udp : udp + 2], frame[udp + 2 : udp + 4])

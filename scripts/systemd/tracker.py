"""Clients of the tracker: Python programs that run on a test host."""

import time

from host import TIMEOUT

# Connects, announces a peer, then another, and expects the first in the reply; within a number of seconds. Prints `ok`.
CLIENT = r"""
import os, socket, struct, sys, time
host, port, end = sys.argv[1], int(sys.argv[2]), time.monotonic() + float(sys.argv[3])
family = socket.AF_INET6 if ":" in host else socket.AF_INET
udp = socket.socket(family, socket.SOCK_DGRAM)
udp.connect((host, port))

def exchange(request, action):
    # Before the tracker listens, datagrams are refused by the kernel or lost.
    udp.settimeout(1)
    while True:
        number = os.urandom(4)
        try:
            udp.send(request(number))
            reply = udp.recv(4096)
            # Late replies to former requests.
            while reply[4:8] != number:
                reply = udp.recv(4096)
            assert struct.unpack("!I", reply[:4])[0] == action, reply
            return reply
        except TimeoutError:
            pass
        except ConnectionRefusedError:
            time.sleep(0.05)
        if time.monotonic() > end:
            sys.exit("no reply")

connect = exchange(lambda number: struct.pack("!QI", 0x41727101980, 0) + number, 0)
connection = connect[8:16]
info_hash = os.urandom(20)
def announce(port, left):
    return exchange(lambda number: connection + struct.pack("!I", 1) + number + info_hash + os.urandom(20)
               + struct.pack("!QQQIIIiH", 0, left, 0, 2, 0, 7, 50, port), 1)
announce(1001, 0)
reply = announce(1002, 1)
_, _, interval, leechers, seeders = struct.unpack("!IIIII", reply[:20])
assert interval > 0 and seeders == 1 and leechers == 1, reply
assert struct.pack("!H", 1001) in reply[20:], reply
print("ok")
"""

# Announces over each of eight sockets in turn until a file exists, and once more then. Prints a line after the first
# turn, and at the end the number of requests and that of replies within two minutes.
LOAD = r"""
import os, socket, struct, sys, time
host, port, stop = sys.argv[1], int(sys.argv[2]), sys.argv[3]
family = socket.AF_INET6 if ":" in host else socket.AF_INET
sockets, sent, answered = [], 0, 0
for _ in range(8):
    udp = socket.socket(family, socket.SOCK_DGRAM)
    udp.settimeout(120)
    udp.connect((host, port))
    sockets.append(udp)
def connect(udp):
    udp.send(struct.pack("!QII", 0x41727101980, 0, 7))
    return udp.recv(64)[8:16]
end = time.monotonic() + 600
renewed, stops = -600, False
while not stops:
    stops = os.path.exists(stop) or time.monotonic() > end
    if time.monotonic() > renewed + 30:
        ids, renewed = [connect(udp) for udp in sockets], time.monotonic()
    for udp, connection in zip(sockets, ids):
        udp.send(connection + struct.pack("!I", 1) + os.urandom(24) + b"-TR4040-load-load-lo" + struct.pack(
            "!QQQIIIiH", 0, 1, 0, 0, 0, 7, 1, 4001))
        sent += 1
    for udp in sockets:
        try:
            answered += udp.recv(4096)[:4] == struct.pack("!I", 1)
        except TimeoutError:
            pass
    if sent == 8:
        print("begun", flush=True)
print(sent, answered)
"""

# Announces seeders of an info hash; prints the number of seeders from a scrape.
SEEDERS = r"""
import os, socket, struct, sys
port, name, peers = int(sys.argv[1]), bytes.fromhex(sys.argv[2]), int(sys.argv[3])
udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
udp.settimeout(60)
udp.connect(("127.0.0.1", port))
udp.send(struct.pack("!QII", 0x41727101980, 0, 7))
connection = udp.recv(64)[8:16]
for number in range(peers):
    udp.send(connection + struct.pack("!II", 1, number) + name + os.urandom(20) + struct.pack(
        "!QQQIIIiH", 0, 0, 0, 0, 0, 7, 0, 2000 + number))
    udp.recv(4096)
udp.send(connection + struct.pack("!II", 2, 9) + name)
print(struct.unpack("!I", udp.recv(64)[8:12])[0])
"""

# Prints the status and the body of the admin side's response for a path.
GET = r"""
import sys, urllib.error, urllib.request
try:
    answer = urllib.request.urlopen("http://127.0.0.1:6970" + sys.argv[1], timeout=60)
except urllib.error.HTTPError as error:
    answer = error
print(answer.status, answer.read().decode())
"""


def get(host, path):
    """The status and the body of the admin side's response on a host."""
    code, text = host.run("python3", "-c", GET, path).stdout.split(" ", 1)
    return int(code), text


def seeders(host, name, peers=0, port=6969):
    """Announces seeders of an info hash; the number of seeders from a scrape."""
    return int(host.run("python3", "-c", SEEDERS, str(port), name, str(peers)).stdout)


class Load:
    """Announces before, during and after a block; the counts are then in `sent` and `answered`."""

    def __init__(self, host, address="127.0.0.1", port=6969):
        self.host, self.stop = host, f"/tmp/stop-{time.time()}"
        self.process = host.begin("python3", "-c", LOAD, address, str(port), self.stop)

    def __enter__(self):
        begun = self.process.stdout.readline()
        assert begun == "begun\n", self.process.stderr.read()
        return self

    def __exit__(self, *_):
        self.host.write(self.stop, "")
        said, wrong = self.process.communicate(timeout=300)
        assert self.process.returncode == 0, wrong
        self.sent, self.answered = map(int, said.split())


def is_served(host, address, port, seconds):
    """Whether the tracker at an address of the host passes CLIENT."""
    done = host.run("python3", "-c", CLIENT, address, str(port), str(seconds), check=False)
    return done.returncode == 0 and done.stdout == "ok\n"


def assert_served(host, port=6969, addresses=("127.0.0.1", "::1")):
    """Fails unless the tracker passes CLIENT at each address."""
    for address in addresses:
        done = host.run("python3", "-c", CLIENT, address, str(port), str(TIMEOUT), check=False)
        assert done.stdout == "ok\n", f"{address} port {port}: {done.stdout}{done.stderr}"

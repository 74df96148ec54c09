"""Clients of the tracker: Python programs that run on a test host."""

import pathlib
import time

from host import TIMEOUT

UDP = (pathlib.Path(__file__).resolve().parent.parent / "lib" / "udp.py").read_text()

# Connects, announces a peer, then another, and expects the first in the reply; within a number of seconds. Prints `ok`.
CLIENT = UDP + r"""
import sys
client = Client(sys.argv[1], int(sys.argv[2]), seconds=float(sys.argv[3]))
client.connect()
info_hash = os.urandom(20)
client.announce(info_hash, 1001, left=0)
interval, leechers, seeders, peers = client.announce(info_hash, 1002)
assert interval > 0 and seeders == 1 and leechers == 1, (interval, leechers, seeders)
assert 1001 in [port for _, port in peers], peers
print("ok")
"""

# Announces over each of eight sockets in turn until a file exists, and once more then. Prints a line after the first
# turn, and at the end the number of requests and that of replies within two minutes.
LOAD = UDP + r"""
import sys
clients = [Client(sys.argv[1], int(sys.argv[2]), timeout=120) for _ in range(8)]
sent, answered = 0, 0
end = time.monotonic() + 600
renewed, stops = -600, False
while not stops:
    stops = os.path.exists(sys.argv[3]) or time.monotonic() > end
    if time.monotonic() > renewed + 30:
        for client in clients:
            client.connect()
        renewed = time.monotonic()
    for client in clients:
        client.socket.send(client.request(os.urandom(20), 4001, event=0, wanted=1))
        sent += 1
    for client in clients:
        try:
            answered += client.socket.recv(4096)[:4] == struct.pack("!I", 1)
        except TimeoutError:
            pass
    if sent == 8:
        print("begun", flush=True)
print(sent, answered)
"""

# Gets /health over one connection after the other, with the arguments and the output of LOAD.
HTTP_LOAD = r"""
import http.client, os, sys, time
sent, answered = 0, 0
end = time.monotonic() + 600
while not os.path.exists(sys.argv[3]) and time.monotonic() < end:
    connection = http.client.HTTPConnection(sys.argv[1], int(sys.argv[2]), timeout=120)
    sent += 1
    connection.request("GET", "/health", headers={"Connection": "close"})
    answered += connection.getresponse().read().startswith(b"ok")
    connection.close()
    if sent == 1:
        print("begun", flush=True)
print(sent, answered)
"""

# Announces seeders of an info hash; prints the number of seeders from a scrape.
SEEDERS = UDP + r"""
import sys
client, name = Client("127.0.0.1", int(sys.argv[1]), timeout=60), bytes.fromhex(sys.argv[2])
client.connect()
for number in range(int(sys.argv[3])):
    client.announce(name, 2000 + number, left=0, event=0, wanted=0)
print(client.scrape(name)[0])
"""


def get(host, path):
    """The status and the body of the admin side's response on a host."""
    curl = ["curl", "--silent", "--max-time", "60", "--write-out", "\n%{http_code}"]
    text, code = host.run(*curl, f"http://127.0.0.1:6970{path}").stdout.rsplit("\n", 1)
    return int(code), text


def seeders(host, name, peers=0, port=6969):
    """Announces seeders of an info hash; the number of seeders from a scrape."""
    return int(host.run("python3", "-c", SEEDERS, str(port), name, str(peers)).stdout)


class Load:
    """Runs LOAD, or HTTP_LOAD, before, during and after a block. Fails where a request was not answered."""

    def __init__(self, host, address="127.0.0.1", port=6969, program=LOAD):
        self.host, self.stop = host, f"/tmp/stop-{time.time()}"
        self.process = host.begin("python3", "-c", program, address, str(port), self.stop)

    def __enter__(self):
        begun = self.process.stdout.readline()
        assert begun == "begun\n", self.process.stderr.read()

    def __exit__(self, *_):
        self.host.write(self.stop, "")
        said, wrong = self.process.communicate(timeout=300)
        assert self.process.returncode == 0, wrong
        sent, answered = said.split()
        assert sent == answered, said


def is_served(host, address, port, seconds):
    """Whether the tracker at an address of the host passes CLIENT."""
    done = host.run("python3", "-c", CLIENT, address, str(port), str(seconds), check=False)
    return done.returncode == 0 and done.stdout == "ok\n"


def assert_served(host, port=6969, addresses=("127.0.0.1", "::1")):
    """Fails unless the tracker passes CLIENT at each address."""
    for address in addresses:
        done = host.run("python3", "-c", CLIENT, address, str(port), str(TIMEOUT), check=False)
        assert done.stdout == "ok\n", f"{address} port {port}: {done.stdout}{done.stderr}"

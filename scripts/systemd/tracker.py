"""A client of the tracker on a host: one question by the host's own python, over its own network."""

# Connects, announces a peer, announces another and expects to be told of the first. Prints `ok`.
CLIENT = r"""
import os, socket, struct, sys
host, port = sys.argv[1], int(sys.argv[2])
family = socket.AF_INET6 if ":" in host else socket.AF_INET
udp = socket.socket(family, socket.SOCK_DGRAM)
udp.connect((host, port))

def ask(request, action):
    # The first question may come before the tracker: then the kernel refuses, or nobody answers.
    for attempt in range(int(sys.argv[3])):
        number = os.urandom(4)
        try:
            udp.settimeout(1)
            udp.send(request(number))
            reply = udp.recv(4096)
        except (TimeoutError, ConnectionRefusedError):
            continue
        if reply[4:8] == number:
            assert struct.unpack("!I", reply[:4])[0] == action, reply
            return reply
    sys.exit("no answer")

connect = ask(lambda number: struct.pack("!QI", 0x41727101980, 0) + number, 0)
connection = connect[8:16]
info_hash = os.urandom(20)
def announce(port, left):
    return ask(lambda number: connection + struct.pack("!I", 1) + number + info_hash + os.urandom(20)
               + struct.pack("!QQQIIIiH", 0, left, 0, 2, 0, 7, 50, port), 1)
announce(1001, 0)
reply = announce(1002, 1)
_, _, interval, leechers, seeders = struct.unpack("!IIIII", reply[:20])
assert interval > 0 and seeders == 1 and leechers == 1, reply
assert struct.pack("!H", 1001) in reply[20:], reply
print("ok")
"""


def asks(host, address, port, attempts=5):
    """Whether the tracker at an address of the host answers rightly."""
    done = host.run("python3", "-c", CLIENT, address, str(port), str(attempts), check=False)
    return done.returncode == 0 and done.stdout == "ok\n"


def demand(host, port=6969, addresses=("127.0.0.1", "::1")):
    """Fails where the tracker does not answer rightly at each address."""
    for address in addresses:
        done = host.run("python3", "-c", CLIENT, address, str(port), "5", check=False)
        assert done.stdout == "ok\n", f"{address} port {port}: {done.stdout}{done.stderr}"

"""The measured processes: command lines, start, pinning and end."""

import contextlib
import signal
import socket
import struct
import subprocess
import time

from place import RELEASE, Failure, rival

PORT = 16969
TRACKER_VCPU = 0
LOAD_VCPU = 1


def onrush(directory, *arguments, listen=f"127.0.0.1:{PORT}"):
    """The command line of the onrush daemon."""
    return [RELEASE / "onrush", "--listen", listen, "--state-dir", directory / "state",
            "--log-level", "warn", *arguments]


def colocated(directory, **where):
    """One worker with socket and shard."""
    return onrush(directory, "--placement", "colocated", "--workers", "1", **where)


def split(directory, **where):
    """A socket worker and a swarm worker."""
    return onrush(directory, "--placement", "split", "--workers", "2", **where)


def aquatic(directory):
    """aquatic_udp with its default configuration (one socket worker) except for the address."""
    binary = rival("aquatic_udp")
    config = directory / "aquatic.toml"
    config.write_text(configured(binary, {'"0.0.0.0:3000"': f'"127.0.0.1:{PORT}"'}))
    return [binary, "-c", config]


def floor(directory, reply_bytes, wildcard=False):
    """A server that only receives, swaps the addresses and sends: the cost of the kernel and the net crate."""
    where = ["0.0.0.0", "--pktinfo"] if wildcard else ["127.0.0.1"]
    return [RELEASE / "floor", "--listen", f"{where[0]}:{PORT}", *where[1:],
            "--reply-bytes", str(reply_bytes)]


def configured(binary, changes):
    """The default configuration printed by an aquatic program, with changes."""
    text = subprocess.run([binary, "-p"], capture_output=True, text=True, check=True).stdout
    for old, new in changes.items():
        if old not in text:
            raise Failure(f"{binary.name}: {old} is not in its default configuration")
        text = text.replace(old, new)
    return text


@contextlib.contextmanager
def running(command):
    """Runs a process on the tracker's vCPU for the duration of a block, which starts when the process replies."""
    must_be_free()
    arguments = ["taskset", "-c", str(TRACKER_VCPU), *map(str, command)]
    process = subprocess.Popen(arguments, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        wait_until_answering(process)
        yield process
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def must_be_free():
    """Fails if the port is in use: a second tracker would silently receive half of the datagrams
    (SO_REUSEPORT), which would count as loss."""
    for address in ("127.0.0.1", "0.0.0.0"):
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            try:
                probe.bind((address, PORT))
            except OSError as error:
                raise Failure(f"port {PORT} is in use: end the process that uses it (ss -ulnp), or wait") from error


def wait_until_answering(process, seconds=20):
    """Waits for the reply to a connect (BEP 15, "Connect")."""
    request = struct.pack(">QII", 0x41727101980, 0, 1)
    deadline = time.monotonic() + seconds
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
        client.settimeout(0.1)
        while time.monotonic() < deadline:
            if process.poll() is not None:
                raise Failure(f"{process.args[3]} ended with status {process.returncode}")
            client.sendto(request, ("127.0.0.1", PORT))
            try:
                if len(client.recv(64)) == 16:
                    return
            except (TimeoutError, ConnectionRefusedError):
                pass
    raise Failure(f"{process.args[3]} does not reply on port {PORT}")

"""The processes that are measured: how each is started, pinned and ended."""

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
    """The command of our daemon."""
    return [RELEASE / "onrush", "--listen", listen, "--state-dir", directory / "state",
            "--log-level", "warn", *arguments]


def colocated(directory, **where):
    """One worker with socket and shard."""
    return onrush(directory, "--placement", "colocated", "--workers", "1", **where)


def split(directory, **where):
    """A socket worker and a swarm worker."""
    return onrush(directory, "--placement", "split", "--workers", "2", **where)


def aquatic(directory):
    """aquatic_udp with its default configuration (one socket worker), but for the address."""
    binary = rival("aquatic_udp")
    config = directory / "aquatic.toml"
    config.write_text(configured(binary, {'"0.0.0.0:3000"': f'"127.0.0.1:{PORT}"'}))
    return [binary, "-c", config]


def floor(directory, reply_bytes, wildcard=False):
    """Receives, swaps the addresses, sends: nothing that is not the kernel's or the net crate's."""
    where = ["0.0.0.0", "--pktinfo"] if wildcard else ["127.0.0.1"]
    return [RELEASE / "floor", "--listen", f"{where[0]}:{PORT}", *where[1:],
            "--reply-bytes", str(reply_bytes)]


def configured(binary, changes):
    """The default configuration that an aquatic program prints, changed."""
    text = subprocess.run([binary, "-p"], capture_output=True, text=True, check=True).stdout
    for old, new in changes.items():
        if old not in text:
            raise Failure(f"{binary.name}: {old} is not in its default configuration")
        text = text.replace(old, new)
    return text


@contextlib.contextmanager
def running(command):
    """A process on the tracker's vCPU, answering; ended afterwards."""
    must_be_free()
    words = ["taskset", "-c", str(TRACKER_VCPU), *map(str, command)]
    process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
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
    """A second tracker on the port would silently take half of the datagrams (SO_REUSEPORT), and both
    would look as if they lost them."""
    for address in ("127.0.0.1", "0.0.0.0"):
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            try:
                probe.bind((address, PORT))
            except OSError as error:
                raise Failure(f"port {PORT} is in use: end who has it (ss -ulnp), or wait") from error


def wait_until_answering(process, seconds=20):
    """Until a connect is answered (BEP 15, "Connect")."""
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
    raise Failure(f"{process.args[3]} does not answer on port {PORT}")

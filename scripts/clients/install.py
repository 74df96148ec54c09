"""Installs the clients once: Debian packages, and libtorrent from PyPI into target/."""

import subprocess

from places import ROOT, VENV, VENV_PYTHON, say
from processes import Failure

# Client (None: all of them; "capture": a recording), program, Debian package.
PROGRAMS = [
    (None, "ip", "iproute2"),
    (None, "openssl", "openssl"),
    ("capture", "tcpdump", "tcpdump"),
    ("aria2", "aria2c", "aria2"),
    ("transmission", "transmission-daemon", "transmission-daemon"),
    ("transmission", "transmission-remote", "transmission-cli"),
]


def install(clients):
    """Makes the named clients ("libtorrent", "transmission", "aria2", "capture") ready to run."""
    _bash('need "$@"', *(f"{program}={package}" for client, program, package in PROGRAMS if client in [None, *clients]))
    if "libtorrent" in clients and not _has_libtorrent():
        say(f"installing from PyPI into {VENV} (once): libtorrent")
        _bash('need_venv && mkdir -p "$1" && python3 -m venv --clear "$1" && '
              '"$1/bin/pip" install --quiet --disable-pip-version-check "libtorrent>=2.0"', VENV)


def _bash(line, *arguments):
    command = ["bash", "-c", f". scripts/lib/packages.sh && {line}", "install", *arguments]
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode != 0:
        raise Failure(f"{line} failed:\n{done.stdout[-4000:]}")


def _has_libtorrent():
    if not VENV_PYTHON.exists():
        return False
    return subprocess.run([VENV_PYTHON, "-c", "import libtorrent"], capture_output=True).returncode == 0

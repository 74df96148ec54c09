"""Installs the clients once: Debian packages, and packages of PyPI and npm into target/."""

import os
import subprocess

from places import NPM, ROOT, VENV, VENV_PYTHON, say
from processes import Failure

# Client (None: all of them; "capture": a recording), program, Debian package.
PROGRAMS = [
    (None, "ip", "iproute2"),
    (None, "openssl", "openssl"),
    ("capture", "tcpdump", "tcpdump"),
    ("aria2", "aria2c", "aria2"),
    ("transmission", "transmission-daemon", "transmission-daemon"),
    ("transmission", "transmission-remote", "transmission-cli"),
    ("webtorrent", "chromium", "chromium"),
    *((client, *program) for client in ("webtorrent", "bittorrent-tracker")
      for program in (("node", "nodejs"), ("npm", "npm"))),
]
# Client, the variable with the path of a package of npm, and the command that installs it.
NPM_PACKAGES = [
    ("webtorrent", "WEBTORRENT", "of_npm {} webtorrent 3.0.21"),
    ("webtorrent", "PLAYWRIGHT", "of_npm_playwright {}"),
    ("bittorrent-tracker", "BITTORRENT_TRACKER", "of_npm {} bittorrent-tracker 11.2.3"),
]


def install(clients):
    """Makes the named clients (those of PROGRAMS, "libtorrent") ready to run."""
    _bash('need "$@"', *(f"{program}={package}" for client, program, package in PROGRAMS if client in [None, *clients]))
    if "libtorrent" in clients and not _has_libtorrent():
        say(f"installing from PyPI into {VENV} (once): libtorrent")
        _bash('need_venv && mkdir -p "$1" && python3 -m venv --clear "$1" && '
              '"$1/bin/pip" install --quiet --disable-pip-version-check "libtorrent>=2.1.1"', VENV)
    for client, variable, command in NPM_PACKAGES:
        if client in clients:
            # For the scripts in node, and for this script in its namespaces.
            os.environ[variable] = _bash(command.format('"$1"'), NPM).splitlines()[-1]


def _bash(line, *arguments):
    command = ["bash", "-c", f". scripts/lib/packages.sh && {line}", "install", *arguments]
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode != 0:
        raise Failure(f"{line} failed:\n{done.stdout[-4000:]}")
    return done.stdout


def _has_libtorrent():
    if not VENV_PYTHON.exists():
        return False
    # WebTorrent is compiled in since 2.1.1.
    code = "import libtorrent; exit(tuple(map(int, libtorrent.version.split('.')[:3])) < (2, 1, 1))"
    return subprocess.run([VENV_PYTHON, "-c", code], capture_output=True).returncode == 0

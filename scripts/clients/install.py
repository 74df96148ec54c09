"""Installs the clients once: Debian packages, and libtorrent from PyPI into target/."""

import shutil
import subprocess

from places import ROOT, VENV, VENV_PYTHON, Failure, say

# Client (None: all of them; "capture": a recording), program, Debian package.
PROGRAMS = [
    (None, "ip", "iproute2"),
    ("capture", "tcpdump", "tcpdump"),
    ("aria2", "aria2c", "aria2"),
    ("transmission", "transmission-daemon", "transmission-daemon"),
    ("transmission", "transmission-remote", "transmission-cli"),
]


def install(clients):
    """Makes the named clients ("libtorrent", "transmission", "aria2", "capture") ready to run."""
    packages = [
        package
        for client, program, package in PROGRAMS
        if (client is None or client in clients) and not shutil.which(program)
    ]
    needs_venv = "libtorrent" in clients and not _venv_is_ready()
    if needs_venv and not _has_ensurepip():
        packages.append("python3-venv")
    if packages:
        say(f"installing from Debian (once): {' '.join(packages)}")
        _run(["bash", "-c", '. scripts/lib/packages.sh && install_packages "$@"', "install", *packages])
    if needs_venv:
        say(f"installing from PyPI into {VENV} (once): libtorrent")
        VENV.parent.mkdir(parents=True, exist_ok=True)
        _run(["python3", "-m", "venv", "--clear", VENV])
        _run([VENV_PYTHON, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "libtorrent>=2.0"])


def _run(command):
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    if done.returncode != 0:
        raise Failure(f"{' '.join(map(str, command))} failed:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")


def _has_ensurepip():
    return subprocess.run(["python3", "-c", "import ensurepip, venv"], capture_output=True).returncode == 0


def _venv_is_ready():
    if not VENV_PYTHON.exists():
        return False
    return subprocess.run([VENV_PYTHON, "-c", "import libtorrent"], capture_output=True).returncode == 0

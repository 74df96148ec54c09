"""Paths, the description of the machine, and builds of the measured programs."""

import os
import platform
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
TARGET = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")).resolve()
RELEASE = TARGET / "release"

AQUATIC_VERSION = "0.9.0"


class Failure(Exception):
    """Ends the script with this message."""


def say(text):
    """Prints a line of progress."""
    print(f"bench-speed: {text}", file=sys.stderr, flush=True)


def build(*arguments):
    """Builds with the release profile."""
    command = ["cargo", "build", "--release", "--locked", "--quiet", *arguments]
    subprocess.run(command, cwd=ROOT, check=True)


def rival(name):
    """A program of aquatic, installed once by scripts/bench-peers."""
    root = Path(os.environ.get("ONRUSH_PEERS", TARGET / "peers")).resolve()
    binary = root / "bin" / name
    if not binary.exists():
        peer = "aquatic" if name == "aquatic_udp" else name
        subprocess.run([ROOT / "scripts" / "bench-peers", "--only", peer, "--strict"],
                       check=True, stdout=sys.stderr, env={**os.environ, "ONRUSH_PEERS": str(root)})
    return binary


def machine():
    """The machine and the versions, for the report."""
    info = Path("/proc/cpuinfo").read_text().splitlines()
    model = next((line.split(":", 1)[1].strip() for line in info if line.startswith("model name")),
                 platform.processor())
    run = lambda *command: subprocess.run(command, cwd=ROOT, capture_output=True, text=True,
                                          check=True).stdout.strip()
    return {
        "cpu": model,
        "vcpus": os.cpu_count(),
        "kernel": platform.release(),
        "rustc": run("rustc", "--version"),
        "commit": run("git", "describe", "--always", "--dirty"),
        "aquatic_udp": AQUATIC_VERSION,
        "date": time.strftime("%Y-%m-%d"),
    }

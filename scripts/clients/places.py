"""Paths, the error that ends a script, and progress messages."""

import os
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "scripts" / "lib"))
TARGET = Path(os.environ.get("CARGO_TARGET_DIR") or ROOT / "target").absolute()
VENV = TARGET / "clients" / "venv"
VENV_PYTHON = VENV / "bin" / "python"


class Failure(Exception):
    """Ends the script with this message."""


def say(text):
    """Prints progress to standard error."""
    print(text, file=sys.stderr, flush=True)

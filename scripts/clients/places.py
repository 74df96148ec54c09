"""Paths and progress messages."""

import os
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TARGET = Path(os.environ.get("CARGO_TARGET_DIR") or ROOT / "target").absolute()
VENV = TARGET / "clients" / "venv"
NPM = TARGET / "npm"
VENV_PYTHON = VENV / "bin" / "python"


def say(text):
    """Prints progress to standard error."""
    print(text, file=sys.stderr, flush=True)

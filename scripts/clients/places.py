"""Where things are, and how to give up."""

import os
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TARGET = Path(os.environ.get("CARGO_TARGET_DIR") or ROOT / "target").absolute()
VENV = TARGET / "clients" / "venv"
VENV_PYTHON = VENV / "bin" / "python"


class Failure(Exception):
    """Something that the person who runs this has to know, in one line."""


def say(text):
    """Progress: what takes time now."""
    print(text, file=sys.stderr, flush=True)

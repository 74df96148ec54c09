"""Runs the public methods of an object as checks, in the order of their definition."""

import time
import traceback


def run(case):
    """Prints each check with its duration, and the counts in the last line; returns whether any check failed."""
    passed = failed = 0
    for name, check in list(vars(type(case)).items()):
        if name.startswith("_") or "_" not in name:
            continue
        began = time.monotonic()
        try:
            check(case)
        except Exception:
            failed += 1
            print(f"FAILED {name}\n{traceback.format_exc()}", flush=True)
        else:
            passed += 1
            print(f"ok     {name} ({time.monotonic() - began:.1f} s)", flush=True)
    print(f"{passed} passed, {failed} failed", flush=True)
    return failed != 0

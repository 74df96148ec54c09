"""Runs the checks of an object: its public methods that say what holds, in the order in which they stand."""

import time
import traceback


def run(case):
    """Prints each check with its time, and the count as the last line; whether any failed."""
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

"""The rows of scripts/attack-test: see its head, and docs/LOAD.md#attacks."""

import argparse
import contextlib
import json
import os
import pathlib
import signal
import subprocess
import sys
import time

import load
import place
import rows

# Set in the process that runs in the namespace of the load.
INSIDE = "ONRUSH_ATTACK_TEST_INSIDE"
NICENESS = -15


def arguments():
    parser = argparse.ArgumentParser(prog="scripts/attack-test")
    parser.add_argument("what", nargs="?", choices=["soak"], help="another test than the rows")
    parser.add_argument("--full", action="store_true", help="40,000/s honest and 120,000/s attack, p99 within 10 ms")
    parser.add_argument("--only", default="", help="only these rows, separated by commas")
    parser.add_argument("--list", action="store_true", help="print the names of the rows")
    parser.add_argument("--minutes", type=float, default=30, help="length of the soak")
    parser.add_argument("--json", help="write the reports of all rows")
    parser.add_argument("--check", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    given.only = [name for name in given.only.split(",") if name]
    unknown = set(given.only) - set(rows.names())
    if unknown:
        parser.error(f"no row {', '.join(sorted(unknown))}: the rows are {', '.join(rows.names())}")
    return given


def enter():
    """Runs this script again in a network namespace of its own; returns its exit status."""
    # As root the rows take precedence over other programs, whose work would otherwise be measured. Where the kernel
    # schedules by session (autogroup), a niceness counts within a session only, and the session has one of its own.
    with contextlib.suppress(PermissionError):
        os.setpriority(os.PRIO_PROCESS, 0, NICENESS)
    first = f'echo {NICENESS} 2>/dev/null >/proc/self/autogroup; exec "$@"'
    # That process ends with this one.
    tied = ["setpriv", "--pdeathsig", "TERM", "--"]
    command = ["sh", "-c", first, "sh", *place.unshare(), *tied, sys.executable, *sys.argv]
    child = subprocess.Popen(command, env=dict(os.environ, **{INSIDE: "1"}), start_new_session=True)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: child.terminate())
    return child.wait()


def stop(*_):
    """Ends this script and its programs; a second signal does not interrupt that."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    sys.exit("error: interrupted; nothing is left running")


def run(given):
    signal.signal(signal.SIGTERM, stop)
    settings = rows.Settings.full() if given.full else rows.Settings.quick()
    results = []
    started = time.monotonic()
    with place.Place() as where:
        chosen = [("soak", rows.soak(given.minutes))] if given.what == "soak" else [
            (name, row) for name, row in rows.ROWS if not given.only or name in given.only
        ]
        for name, row in chosen:
            try:
                result = row(where, settings)
            except Exception as error:  # A row that cannot run fails alone.
                result = dict(failures=[f"{type(error).__name__}: {error}"], slow=[])
            results.append(dict(row=name, verdict=settings.verdict(result), **result))
            print(line(results[-1]), flush=True)
    seconds = time.monotonic() - started
    print()
    for text in table(results):
        print(text)
    if given.json:
        log = dict(
            date=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), kernel=os.uname().release,
            vcpus=os.cpu_count(), command=" ".join(["scripts/attack-test", *sys.argv[1:]]),
            seconds=round(seconds, 1), rows=results,
        )
        pathlib.Path(given.json).write_text(json.dumps(log, indent=1) + "\n")
    verdicts = [result["verdict"] for result in results]
    print(f"in {seconds:.0f} s")
    if "DISTURBED" in verdicts:
        print(f"{verdicts.count('DISTURBED')} rows were out of bounds while other programs or the hypervisor took their "
              "vCPUs: of these nothing is known but that all datagrams are accounted for and memory is within bounds; "
              "repeat them with --only when the machine is idle")
    print(f"{verdicts.count('ok')} passed, {verdicts.count('FAILED')} failed")
    return 1 if "FAILED" in verdicts else 0


def line(result):
    text = f"{result['verdict']:9} {result['row']}: "
    runs = [*result.get("repeated", []), result]
    told = [result["note"]] if "note" in result else []
    told += result["failures"] + result["slow"]
    if len(runs) > 1 or result["verdict"] != "ok":
        told += [f"(disturbed: {cause})" for cause in result.get("disturbances", [])]
    for number, run in enumerate(runs[:-1], 1):
        told.append(f"(run {number}: {', '.join(run['failures'] + run['slow'] + run['disturbances'])})")
    told += [f"warning: {warning}" for warning in result.get("report", {}).get("warnings", []) if "memory" in warning]
    return (text + "; ".join(told)).removesuffix(": ")


HEADS = ["row", "result", "established %", "newcomers %", "p99 ms", "CPU %", "MiB", "step", "sent", "balance"]


def table(results):
    lines = [HEADS]
    for result in results:
        first = [result["row"], result["verdict"]]
        report = result.get("report")
        if report is None:
            lines.append(first + [result.get("figure", "")] + [""] * 7)
            continue
        percent = [f"{load.percent(report[kind]):.3f}" for kind in ("established", "newcomers")]
        tracker = report["tracker"]
        balance = load.balance(report)
        lines.append(first + percent + [
            f"{report['established']['latency']['p99'] / 1000:.2f}", f"{tracker['cpu_percent']:.0f}",
            f"{tracker['memory'][1] / 2**20:.1f}", f"{tracker['step'][0]:.0f}",
            f"{sum(report['conservation']['sent']):,}",
            "exact" if balance == (0, 0) else f"{balance[0]:+}, {balance[1]:+}",
        ])
    widths = [max(len(cells[n]) for cells in lines) for n in range(len(HEADS))]
    for cells in lines:
        yield "  ".join(cell.ljust(width) for cell, width in zip(cells, widths)).rstrip()


if __name__ == "__main__":
    given = arguments()
    if given.list:
        print("\n".join(rows.names()))
    elif given.check:
        place.unshare()
    elif INSIDE in os.environ:
        sys.exit(run(given))
    else:
        sys.exit(enter())

"""Measures onrush against its targets, aquatic_udp and the floor.

Trackers run on vCPU 0 and the load on vCPU 1; the rounds of all trackers are interleaved, so that other
activity of the machine affects them equally. CPU is user and system time of the tracker's process per
reply that was checked and right. Memory is resident memory, counted from the idle process.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import cpu
import load
import programs
import report
from place import Failure, build, machine, say

PARTS = {
    "cpu": "CPU time per reply of onrush, aquatic_udp and the floor under the same load",
    "load": "CPU time per reply of onrush-load and aquatic_udp_load_test against the same servers",
    "instructions": "instructions per request, by callgrind",
    "memory": "bytes per peer and swarm, of the shard and of whole processes",
    "time": "time of an announce, cache-cold",
}


def arguments():
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="scripts/bench-speed", description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="parts:\n" + "\n".join(f"  {name:14} {about}" for name, about in PARTS.items())
        + "\n\nexamples:\n  scripts/bench-speed                            everything, some 20 minutes\n"
        "  scripts/bench-speed --only cpu --rounds 3      one part, with fewer rounds\n"
        "  scripts/bench-speed --out docs/benchmarks/DIR  writes report.md, data.json.gz and a chart there")
    parser.add_argument("--only", action="append", choices=PARTS, metavar="PART",
                        help="measure this part (may be given several times)")
    parser.add_argument("--rounds", type=int, default=5, help="interleaved rounds of the parts cpu and load")
    parser.add_argument("--seconds", type=int, default=5, help="length of each measurement in these parts")
    parser.add_argument("--out", type=Path, help="directory for the results")
    return parser.parse_args()


def main():
    options = arguments()
    parts = options.only or list(PARTS)
    if (os.cpu_count() or 1) < 2:
        raise Failure("two vCPUs are needed, one for the tracker and one for the load")
    where = machine()  # before the build, as later commits are not measured
    say("building")
    build("-p", "onrush", "-p", "onrush-load", "--bins")
    results, raw = {}, {}
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        if "cpu" in parts:
            build("-p", "onrush-lab", "--bin", "floor")
            results["cpu"], raw["cpu"], results["scenes"] = cpu.measure(
                directory, options.rounds, options.seconds)
        if "load" in parts:
            build("-p", "onrush-lab", "--bin", "floor")
            results["load"], raw["load"] = load.measure(directory, options.rounds, options.seconds)
        if "instructions" in parts:
            results["instructions"] = raw["instructions"] = programs.instructions()
        if "memory" in parts:
            results["memory"] = raw["memory"] = programs.memory(directory)
        if "time" in parts:
            results["time"] = raw["time"] = programs.time()
    text = report.text(where, options, results)
    print(text)
    if options.out:
        options.out.mkdir(parents=True, exist_ok=True)
        report.write(options.out, text, {"machine": where, **raw}, results)
        say(f"written to {options.out}")


if __name__ == "__main__":
    try:
        main()
    except Failure as failure:
        sys.exit(f"bench-speed: {failure}")
    except subprocess.CalledProcessError as failure:
        sys.exit(f"bench-speed: {failure.cmd[0]} failed with status {failure.returncode}")

#!/usr/bin/env python3
"""Builds the tests, and runs several of their binaries at the same time.

    run_tests.py build [CARGO ARGUMENT...]   as `cargo test --no-run` does (default: --workspace --tests)
    run_tests.py run [N]                     what the last build has made, without cargo and its lock; N times

`cargo test` runs one binary after another, and most of the daemon's tests wait for a process or a time-out. This
script runs several binaries at a time, the longest first; the output of each goes into a log of its own. It prints
one line per binary, the output of failed ones, and cargo's line of counts for all of them. After several runs it
prints which test failed in which of them.

As an ordinary user the binaries run in a user namespace in which the caller is root and a range of ids is mapped,
as tests create network namespaces, raw sockets and processes of another user.
"""

import concurrent.futures
import json
import os
import pathlib
import re
import resource
import shutil
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
LOGS = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")).resolve() / "test-logs"
BUILT = LOGS / "binaries.json"
COUNTS = re.compile(r"^test result: \w+\. (\d+) passed; (\d+) failed; (\d+) ignored", re.M)
# A test prints between its name and its result if it writes past the capture of the test harness.
FAILED = re.compile(r"^---- (\S+) stdout ----$", re.M)
# The longest first, so that none of them is left over at the end; names as in `name()`.
LONGEST = [
    "onrush/it", "onrush/faults", "onrush/simulation", "onrush-load/it", "onrush-verify/it", "onrush-tracker/it",
    "onrush-swarm/it",
]
# Most of these tests wait: for a process, a second to pass, a time-out.
WAITING = {"onrush/it": 8, "onrush/faults": 8, "onrush-load/it": 4, "onrush-verify/it": 4}
# A binary that runs for longer than this has a test that hangs, seconds. A crowded host takes several times as long as a
# quiet one.
DEADLINE = 1800


def build(arguments):
    """Writes down the test binaries as [name, package directory, path], the longest first."""
    command = ["cargo", "test", "--locked", "--no-run", "--message-format=json-render-diagnostics", *arguments]
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    if done.returncode != 0:
        sys.exit("error: the tests do not build")
    binaries = []
    for line in done.stdout.splitlines():
        message = json.loads(line)
        if message["reason"] == "compiler-artifact" and message["profile"]["test"] and message["executable"]:
            directory = str(pathlib.Path(message["manifest_path"]).parent)
            binaries.append((name(message), directory, message["executable"]))
    binaries.sort(key=lambda it: (LONGEST.index(it[0]) if it[0] in LONGEST else len(LONGEST), it[0]))
    LOGS.mkdir(parents=True, exist_ok=True)
    BUILT.write_text(json.dumps(binaries, indent=1))


def name(message):
    """PACKAGE for unit tests of a library, PACKAGE/bin for those of a program, PACKAGE/TARGET for integration tests."""
    # path+file:///checkout/crates/net#onrush-net@0.1.0, and without the name where the directory has the same.
    identity = message["package_id"]
    package = identity.rsplit("#", 1)[1].split("@")[0] if "@" in identity else identity.split("#")[0].rsplit("/", 1)[1]
    kind = message["target"]["kind"][0]
    return {"test": f"{package}/{message['target']['name']}", "bin": f"{package}/bin"}.get(kind, package)


def run(binary):
    """Runs one binary; returns its name, seconds, exit status and log."""
    name, directory, path = binary
    log = LOGS / f"test-{name.replace('/', '-')}.log"
    environment = dict(os.environ, CARGO_MANIFEST_DIR=directory)
    environment.setdefault("RUST_TEST_THREADS", str(WAITING.get(name, os.cpu_count())))
    started = time.monotonic()
    with open(log, "wb") as output:
        try:
            status = subprocess.run(
                [*namespace(), path], cwd=directory, env=environment, stdin=subprocess.DEVNULL,
                stdout=output, stderr=output, timeout=DEADLINE,
            ).returncode
        except subprocess.TimeoutExpired:
            status = f"none within {DEADLINE} s"
    return name, time.monotonic() - started, status, log


def namespace():
    """The begin of a command line that has root's rights over namespaces and ids."""
    return [] if os.geteuid() == 0 else ["unshare", "--map-root-user", "--map-auto", "--"]


def run_all():
    """Runs what was built once; returns the names of failed tests."""
    binaries = json.loads(BUILT.read_text())
    total = [0, 0, 0]
    failures = []
    with concurrent.futures.ThreadPoolExecutor(max_workers=(os.cpu_count() or 1) + 1) as pool:
        for name, seconds, status, log in (done.result() for done in concurrent.futures.as_completed(
            pool.submit(run, binary) for binary in binaries
        )):
            text = log.read_text(errors="replace")
            counts = COUNTS.search(text)
            numbers = [int(number) for number in counts.groups()] if counts else [0, 0, 0]
            if counts is None and status == 0:
                status = 1  # no result: the tests did not run to their end
            if status != 0 and numbers[1] == 0:
                numbers[1] = 1  # aborted or hung: at least one test has failed
            total = [sum(pair) for pair in zip(total, numbers)]
            print(f"{name:28} {seconds:6.1f} s  {numbers[0]:4} passed  {numbers[1]:3} failed", flush=True)
            if status != 0:
                failures += [f"{name} {test}" for test in FAILED.findall(text)] or [f"{name}: exit status {status}"]
                # Its own counts are part of the last line's.
                shown = COUNTS.sub(r"of this binary: \1 passed; \2 failed; \3 ignored", text)[-20000:]
                print(f"---- {name}: exit status {status}; {log}\n{shown}", flush=True)
    word = "FAILED" if failures else "ok"
    print(f"test result: {word}. {total[0]} passed; {total[1]} failed; {total[2]} ignored", flush=True)
    return failures


def run_repeatedly(times):
    """Runs what was built so many times; returns the exit status."""
    # Tests of one binary open sockets at the same time; the usual soft limit is 1024.
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    if times == 1:
        return 1 if run_all() else 0
    failed_runs = 0
    summary = []
    for number in range(1, times + 1):
        print(f"==> run {number} of {times}", flush=True)
        started = time.monotonic()
        failures = run_all()
        failed_runs += bool(failures)
        summary.append(f"run {number}: {time.monotonic() - started:.0f} s, {len(failures)} failed")
        summary += [f"    {failure}" for failure in failures]
        if failures:
            kept = LOGS / f"run-{number}"
            shutil.rmtree(kept, ignore_errors=True)
            kept.mkdir()
            for log in LOGS.glob("test-*.log"):
                shutil.copy(log, kept)
    print("\n".join(summary))
    print(f"{times - failed_runs} of {times} runs without a failure; logs of the others are in {LOGS}/run-N")
    return 1 if failed_runs else 0


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["build", *arguments]:
            build(arguments or ["--workspace", "--tests"])
        case ["run", *times] if len(times) < 2 and all(map(str.isdecimal, times)):
            sys.exit(run_repeatedly(int(times[0]) if times else 1))
        case _:
            sys.exit(__doc__)

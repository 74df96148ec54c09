"""Processor time of load testers per reply: ours with and without bursts beside aquatic's, against the
same servers, interleaved within each round."""

import json
import os
import re
import resource
import subprocess
import time
from dataclasses import dataclass, field
from statistics import median

import contenders
from contenders import LOAD_VCPU, PORT, running
from place import RELEASE, Failure, rival, say

# The classic mix, with sockets on as many addresses as aquatic's tool uses.
LIKE_AQUATIC = ["--profile", "classic", "--sources", "4"]
BURSTS = "onrush-load --burst 64 --in-flight 512"
NO_BURSTS = "onrush-load --no-bursts"
AQUATIC = "aquatic_udp_load_test"
# The maximum number of segments per message; aquatic's tool has a tenth of all its requests in flight.
LARGE = ["--burst", "64", "--in-flight", "512"]
TESTERS = {BURSTS: [*LIKE_AQUATIC, *LARGE], NO_BURSTS: [*LIKE_AQUATIC, "--no-bursts"], AQUATIC: None}
FLOOR = "floor"
TRACKER = "onrush"
ABOUT = {
    FLOOR: "A server without state, so that the load tester and the kernel dominate. Replies have no peers.",
    TRACKER: "The onrush daemon, colocated, one worker. Announce replies have up to 30 peers, which onrush-load checks.",
}
# aquatic's tool reports every five seconds only.
AQUATIC_INTERVAL = 5


@dataclass
class Spent:
    """The results of one load tester against one server, by round."""

    us: list = field(default_factory=list)
    rate: list = field(default_factory=list)
    percent: list = field(default_factory=list)
    checked_percent: list = field(default_factory=list)
    wrong: int = 0


def ratios(by_tester, name):
    """Ratios of a load tester's time to aquatic's in the same round, under the same conditions of the machine."""
    return [mine / theirs for mine, theirs in zip(by_tester[name].us, by_tester[AQUATIC].us)]


def ours(arguments, tracker, seconds, seed, directory):
    """Runs onrush-load; time of its process within the measured window, per right reply."""
    file = directory / "load.json"
    done = subprocess.run(
        [RELEASE / "onrush-load", "--target", f"127.0.0.1:{PORT}", *arguments, "--duration", str(seconds),
         "--pin", str(LOAD_VCPU), "--quiet", "--seed", str(seed), "--tracker-pid", str(tracker.pid),
         "--json", file], capture_output=True, text=True, timeout=seconds + 60)
    if done.returncode not in (0, 1):
        raise Failure(f"onrush-load failed:\n{done.stderr}")
    report = json.loads(file.read_text())
    right = sum(kind["right"] for kind in report["kinds"])
    own = report["own_cpu"]
    if own is None or right == 0:
        raise Failure("onrush-load reports no processor time of its own, or got no right reply")
    return {
        "us": (own["time"]["user"] + own["time"]["system"]) / right * 1e6,
        "rate": right / seconds,
        "percent": own["percent"],
        "checked_percent": report["peers_checked_percent"],
        "wrong": sum(finding["count"] for finding in report["wrong"]),
    }


def aquatics(seconds, directory):
    """Runs aquatic's load tester; its time from the first request, as it first creates two million peers."""
    seconds = max(AQUATIC_INTERVAL, seconds // AQUATIC_INTERVAL * AQUATIC_INTERVAL)
    binary = rival("aquatic_udp_load_test")
    config = directory / "aquatic_load.toml"
    # Without the extra statistics it does less per reply: onrush-load is compared with its fastest mode.
    config.write_text(contenders.configured(binary, {
        "127.0.0.1:3000": f"127.0.0.1:{PORT}", "\nduration = 0": f"\nduration = {seconds}",
        "extra_statistics = true": "extra_statistics = false"}))
    before = children_seconds()
    with subprocess.Popen(["taskset", "-c", str(LOAD_VCPU), binary, "-c", config],
                          stdout=subprocess.PIPE, text=True) as process:
        try:
            prepared = wait_until_sending(process)
            output, _ = process.communicate(timeout=seconds + 60)
        finally:
            if process.poll() is None:
                process.kill()
    used = children_seconds() - before - prepared
    ran = int(re.search(r"Test ran for (\d+) seconds", output)[1])
    rate = float(re.search(r"Average responses per second: ([\d.]+)", output)[1])
    if rate == 0:
        raise Failure(f"{AQUATIC} got no replies:\n{output}")
    return {"us": used / (rate * ran) * 1e6, "rate": rate, "percent": used / ran * 100}


def wait_until_sending(process, seconds=60):
    """Waits until the process's worker thread exists; the process's CPU time so far."""
    tasks, deadline = f"/proc/{process.pid}/task", time.monotonic() + seconds
    while time.monotonic() < deadline and process.poll() is None:
        threads = os.listdir(tasks)
        if any(read(f"{tasks}/{thread}/comm").strip() == "load-test" for thread in threads):
            # Nanoseconds on a processor (Documentation/scheduler/sched-stats.rst).
            return sum(int(read(f"{tasks}/{thread}/schedstat").split()[0]) for thread in threads) / 1e9
        time.sleep(0.005)
    raise Failure(f"{AQUATIC} did not begin to send")


def read(path):
    """The text of a small file."""
    with open(path, encoding="ascii") as file:
        return file.read()


def children_seconds():
    """User and system time of all processes that this one has waited for."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def measure(directory, rounds, seconds):
    """Runs every load tester against every server in turn; the results by server and tester, and the raw results."""
    # Announce replies without peers.
    servers = {FLOOR: contenders.floor(directory, reply_bytes=20),
               TRACKER: contenders.colocated(directory)}
    spent = {server: {name: Spent() for name in TESTERS} for server in servers}
    raw, total = [], rounds * len(servers) * len(TESTERS)
    for number in range(1, rounds + 1):
        for server, command in servers.items():
            for name, arguments in TESTERS.items():
                with running(command) as tracker:
                    found = (aquatics(seconds, directory) if arguments is None
                             else ours(arguments, tracker, seconds, number, directory))
                raw.append({"round": number, "server": server, "load_tester": name, **found})
                of = spent[server][name]
                for key in ("us", "rate", "percent"):
                    getattr(of, key).append(found[key])
                of.checked_percent.append(found.get("checked_percent", 0))
                of.wrong += found.get("wrong", 0)
                say(f"{len(raw)} of {total}: {name} against {server}: {found['us']:.2f} us per reply")
    return spent, raw


def tables(spent):
    """Markdown: one table for each server."""
    lines = [
        "## CPU of the load testers per reply\n",
        "Server on vCPU 0, load tester on vCPU 1, classic mix from 4 addresses, closed loop, interleaved rounds. User and "
        f"system time of the load tester's process: per right reply, each of them checked, for onrush-load; per reply for "
        f"{AQUATIC}, which checks nothing (from its first request, without its extra statistics). Of the peers "
        "listed, *checked* is the share that onrush-load checked one by one.\n"]
    for server, by_tester in spent.items():
        lines += [f"### Against {server}\n", f"{ABOUT[server]}\n",
                  "| load tester | us per reply: median (least to most) | of aquatic's: median of rounds | its vCPU, % "
                  "| replies/s | peers checked, % | wrong |", "|---|---|---|---|---|---|---|"]
        for name, of in by_tester.items():
            checks = name != AQUATIC
            listed = f"{median(of.checked_percent):.0f}" if checks and server == TRACKER else ""
            lines.append(
                f"| {name} | {median(of.us):.2f} ({min(of.us):.2f} to {max(of.us):.2f}) "
                f"| {median(ratios(by_tester, name)):.2f} | {median(of.percent):.0f} "
                f"| {median(of.rate) / 1e3:.0f} k | {listed} | {of.wrong if checks else ''} |")
        lines.append("")
    return "\n".join(lines)

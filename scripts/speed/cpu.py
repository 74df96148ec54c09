"""Processor time per reply: contenders under the same load, interleaved within each round."""

import json
import re
import statistics
import subprocess
from dataclasses import dataclass, field

import contenders
from contenders import LOAD_VCPU, PORT, running
from place import RELEASE, Failure, rival, say

# Ticks of /proc/PID/stat per second, the same on all supported architectures.
TICKS = 100

# A thousand sources with one request at a time each: no client repeats within a batch, as on the internet.
# Where clients repeat (NATs, most load testers) the replies to a client leave in one system call, which
# lowers the CPU time, so this is measured separately.
SPREAD = ["--sources", "1000", "--burst", "1", "--no-bursts", "--in-flight", "512"]


FLOOR = "floor"
COLOCATED = "onrush colocated"
SPLIT = "onrush split 1+1"
AQUATIC = "aquatic_udp"


@dataclass
class Scene:
    """A load, and the trackers under it."""

    name: str
    load: list
    trackers: dict
    about: str


@dataclass
class Measured:
    """The results of one tracker in one scene, by round."""

    us: list = field(default_factory=list)
    percent: list = field(default_factory=list)
    rate: list = field(default_factory=list)
    wrong: int = 0
    loss: list = field(default_factory=list)

    def median(self, what="us"):
        return statistics.median(getattr(self, what))


def scenes(directory, reply_bytes):
    """All scenes; every command serves PORT."""
    ours = {COLOCATED: contenders.colocated(directory),
            SPLIT: contenders.split(directory)}
    rival_ = {AQUATIC: contenders.aquatic(directory)}
    floor = {FLOOR: contenders.floor(directory, reply_bytes)}
    wild = f"0.0.0.0:{PORT}"
    return [
        Scene("classic", ["--profile", "classic", *SPREAD], ours | rival_ | floor,
              "connect, announce, scrape 50/50/1; 1,000 sources, none repeats within a batch"),
        Scene("real", ["--profile", "real", *SPREAD], ours | rival_,
              "the traffic of public trackers, including junk; 1,000 sources"),
        Scene("classic, clients repeat", ["--profile", "classic", "--sources", "16"], ours | rival_,
              "16 sources in bursts: replies to one client leave in one system call, which lowers the CPU time"),
        Scene("classic, any address", ["--profile", "classic", *SPREAD],
              {COLOCATED: contenders.colocated(directory, listen=wild),
               FLOOR: contenders.floor(directory, reply_bytes, wildcard=True)},
              "bound to 0.0.0.0: the local address of each datagram is received and sent with it (IP_PKTINFO)"),
        Scene("aquatic_udp_load_test", None,
              {COLOCATED: contenders.colocated(directory)} | rival_,
              "aquatic's own load tester in its default configuration: 4 sources, replies are not checked"),
    ]


def one_round(scene, name, command, seconds, seed, directory):
    """Runs one tracker under one load; the raw report."""
    with running(command) as tracker:
        if scene.load is None:
            return by_aquatic(tracker.pid, seconds, directory)
        # The floor lists peers that were never announced.
        strangers = ["--strangers"] if name == FLOOR else []
        report = directory / "report.json"
        load = subprocess.run(
            [RELEASE / "onrush-load", "--target", f"127.0.0.1:{PORT}", *scene.load,
             *strangers, "--duration", str(seconds), "--pin", str(LOAD_VCPU), "--quiet",
             "--tracker-pid", str(tracker.pid), "--seed", str(seed), "--json", report],
            capture_output=True, text=True, timeout=seconds + 60,
        )
        if load.returncode not in (0, 1):
            raise Failure(f"onrush-load failed:\n{load.stderr}")
        return json.loads(report.read_text())


def by_aquatic(pid, seconds, directory):
    """Runs aquatic's load tester: the rate is from its output, the tracker's CPU time from /proc."""
    binary = rival("aquatic_udp_load_test")
    config = directory / "aquatic_load.toml"
    config.write_text(contenders.configured(binary, {
        "127.0.0.1:3000": f"127.0.0.1:{PORT}", "\nduration = 0": f"\nduration = {seconds}"}))
    before = processor_seconds(pid)
    done = subprocess.run(["taskset", "-c", str(LOAD_VCPU), binary, "-c", config],
                          capture_output=True, text=True, timeout=seconds + 60, check=True)
    used = processor_seconds(pid) - before
    ran = int(re.search(r"Test ran for (\d+) seconds", done.stdout)[1])
    rate = float(re.search(r"Average responses per second: ([\d.]+)", done.stdout)[1])
    errors = float(re.search(r"Error responses: +([\d.]+)", done.stdout.split("# aquatic")[1])[1])
    return {"tool": "aquatic_udp_load_test", "seconds": ran, "rate": rate, "errors": errors,
            "tracker_seconds": used}


def processor_seconds(pid):
    """User and system time of a process (proc_pid_stat(5))."""
    with open(f"/proc/{pid}/stat", encoding="ascii") as file:
        fields = file.read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def add(measured, report, is_floor):
    """Adds one report to the results of its tracker."""
    if "tool" in report:
        replies = report["rate"] * report["seconds"]
        measured.us.append(report["tracker_seconds"] / replies * 1e6)
        measured.percent.append(report["tracker_seconds"] / report["seconds"] * 100)
        measured.rate.append(report["rate"])
        measured.wrong += round(report["errors"] * report["seconds"])
        return
    cpu = report["tracker_cpu"]
    if cpu is None:
        raise Failure("the report has no processor time of the tracker")
    # Only right replies count; the replies of the floor are not meant to be right.
    answered = sum(kind["right"] + (kind["wrong"] if is_floor else 0) for kind in report["kinds"])
    measured.us.append((cpu["time"]["user"] + cpu["time"]["system"]) / answered * 1e6)
    measured.percent.append(cpu["percent"])
    measured.rate.append(report["rate"])
    measured.wrong += sum(finding["count"] for finding in report["wrong"])
    measured.loss.append(report["loss_percent"])


def usual_reply(directory):
    """Bytes of an average announce reply of the tracker in the classic mix; the floor sends replies of this size."""
    scene = Scene("", ["--profile", "classic", *SPREAD], {}, "")
    report = one_round(scene, COLOCATED, contenders.colocated(directory), 3, 1, directory)
    return 20 + 6 * round(report["peers_per_reply"])


def measure(directory, rounds, seconds):
    """Runs all scenes; the results by scene and tracker, the raw reports, and the descriptions of the scenes."""
    plan = scenes(directory, usual_reply(directory))
    measured = {scene.name: {name: Measured() for name in scene.trackers} for scene in plan}
    raw = []
    total = rounds * sum(len(scene.trackers) for scene in plan)
    for number in range(1, rounds + 1):
        for scene in plan:
            for name, command in scene.trackers.items():
                report = one_round(scene, name, command, seconds, number, directory)
                raw.append({"round": number, "scene": scene.name, "tracker": name, "report": report})
                of = measured[scene.name][name]
                add(of, report, name == FLOOR)
                say(f"{len(raw)} of {total}: {scene.name}, {name}: {of.us[-1]:.2f} us per reply")
    return measured, raw, {scene.name: scene.about for scene in plan}

"""Numbers from the output of the project's measuring programs."""

import json
import re
import subprocess

import contenders
from contenders import LOAD_VCPU, PORT, running
from place import RELEASE, ROOT, Failure, build, say

# The daemon's own allocator.
ALLOCATOR = ["--features", "jemalloc"]
NUMBER = r"(-?[\d.,]+)"

# Swarms and the peers in each.
FILLINGS = [(1_000_000, 2), (1_000_000, 1), (20, 50_000)]


def output(*command):
    """The output of a program pinned to the load's vCPU."""
    arguments = ["taskset", "-c", str(LOAD_VCPU), *map(str, command)]
    return subprocess.run(arguments, cwd=ROOT, capture_output=True, text=True, check=True).stdout


def found(pattern, text):
    """The numbers of the only line that matches."""
    match = re.search(pattern, text, re.MULTILINE)
    if match is None:
        raise Failure(f"no line like `{pattern}` in:\n{text}")
    return [float(number.replace(",", "")) for number in match.groups()]


def instructions():
    """Instructions per request by kind, without those of the in-process network."""
    say("counting instructions")
    text = output("scripts/count-instructions")
    lines = re.findall(r"^(\S+) +(\d+) +(\d+) +(\d+) ", text, re.MULTILINE)
    return {kind: int(tracker) for kind, _, _, tracker in lines}


def memory(directory):
    """Bytes per peer and per swarm of a shard, and the growth of whole tracker processes."""
    say("filling shards (some minutes)")
    build("-p", "onrush-lab", "--bin", "memory", *ALLOCATOR)
    text = output(RELEASE / "memory")
    names = ["per_swarm", "per_peer", "idle", "tables", "peak", "expired", "later", "after_seconds"]
    shards = {}
    for line in text.splitlines()[2:]:
        match = re.match(r"(.{44}) (.*)", line)
        numbers = [float(word) for word in match[2].split()]
        shards[match[1].strip()] = dict(zip(names, numbers, strict=True))
    return {"shard": shards, "process": fillings(directory)}


def fillings(directory):
    """Growth of whole processes, by swarms and peers, ours and aquatic_udp."""
    build("-p", "onrush-lab", "--bin", "fill")
    commands = {"onrush": contenders.colocated(directory), "aquatic_udp": contenders.aquatic(directory)}
    results = []
    for swarms, peers in FILLINGS:
        for name, command in commands.items():
            say(f"filling {name} with {swarms:,} swarms of {peers:,}")
            with running(command) as tracker:
                text = output(RELEASE / "fill", "--target", f"127.0.0.1:{PORT}", "--tracker-pid",
                              tracker.pid, "--swarms", swarms, "--peers", peers)
            results.append({"tracker": name, "of": peers, **json.loads(text.splitlines()[-1])})
    return results


def time():
    """Nanoseconds per announce, by population."""
    say("timing announces (some minutes)")
    build("-p", "onrush-lab", "--bin", "cost", *ALLOCATOR)
    cost = output(RELEASE / "cost", "1 M swarms")
    columns = rf" +{NUMBER} +{NUMBER} +{NUMBER} +{NUMBER}$"
    return {"announce_ns": {name: found(rf"^{name}{columns}", cost)[2]
                            for name in ("1 M swarms of 2", "1 M swarms, Pareto", "1 M swarms, classic")}}

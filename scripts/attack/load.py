"""`onrush-load attack`, and what is wrong in its reports."""

import json
import subprocess
import tempfile

import place

SPOOFED = {"connects", "guessed-ids", "junk", "bad-checksums", "bursts"}
# Memory of a tracker under attack: per peer, and for tables.
PEER_BYTES, TABLE_BYTES = 69, 64 << 20
# Growth of memory from the third to the fourth quarter of a row, beyond that of new peers, which is no leak. jemalloc
# takes memory in groups of pages and returns unused ones after up to ten seconds; such a step counts with its height.
# 384 KiB is a byte per datagram with --full, and 13 without, so a leak of an allocation per datagram fails a row.
LEAK_BYTES = 384 << 10
# The figures of a report, and the sign with which it counts: a bound is the least of the first, the most of others.
FIGURES = {
    "established": ("established clients answered", "%", 1, lambda report: percent(report["established"])),
    "newcomers": ("newcomers answered", "%", 1, lambda report: percent(report["newcomers"])),
    "p99": ("p99 of established clients", "ms", -1, lambda report: report["established"]["latency"]["p99"] / 1000),
    "step": ("overload step", "", -1, lambda report: report["tracker"]["step"][0]),
}
# A run that ends with one of these has no result.
ERRORS = (RuntimeError, OSError, subprocess.SubprocessError)


def attack(name, *more, honest, rate, seconds, targets=place.TARGETS):
    """The report of `onrush-load attack`."""
    with tempfile.NamedTemporaryFile(suffix=".json") as file:
        command = [
            *place.TIED, place.BIN / "onrush-load", "attack", name, *targets, *place.HONEST, *place.NEWCOMERS,
            *(place.FORGED if name in SPOOFED else place.PROVEN), "--admin", place.ADMIN, "--honest", honest,
            "--attack", rate, "--duration", seconds, "--warmup", 1, "--quiet", "--json", file.name, *more,
        ]
        done = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=seconds + 90)
        if done.returncode not in (0, 1) or not file.read(1):
            raise RuntimeError(f"onrush-load attack {name}: exit status {done.returncode}: {done.stderr[-2000:]}")
        file.seek(0)
        report = json.load(file)
        if report["tracker"] is None:
            raise RuntimeError(f"onrush-load attack {name}: the tracker could not be observed at {place.ADMIN}")
        return report


def judged(report):
    """All that is wrong in a report, whatever the row and the speed of the machine."""
    return [*report["failures"], *memory(report), *growth(report)]


def slow(report, **bounds):
    """Figures out of these bounds, by name of FIGURES, that can be due to the speed of the machine."""
    found = unsent(report)
    for figure, bound in bounds.items():
        what, unit, sign, of = FIGURES[figure]
        if (of(report) - bound) * sign < 0:
            found.append(f"{what}: {of(report):.3f} {unit}, {'less' if sign > 0 else 'more'} than {bound}")
    return found


def unsent(report):
    """Failures in the number of datagrams of the attack."""
    # That of `bursts` depends on the speed of the machine.
    sent, due = report["flood"]["sent"], report["flood"]["rate"] * report["duration"]
    if report["attack"] == "bursts" or sent >= due * 0.9:
        return []
    return [f"the attack did not take place: {sent} of {due:.0f} datagrams were sent"]


def percent(of):
    """Answered requests in percent; 0 without requests, which `onrush-load attack` counts as a failure."""
    return of["answered"] * 100 / max(1, of["requests"])


def balance(report):
    """sent - received - dropped, and received - answered - refused."""
    found = report["conservation"]
    dropped, refused = sum(found["dropped"].values()), sum(found["refused"].values())
    return (sum(found["sent"]) - found["received"] - dropped, found["received"] - found["answered"] - refused)


def memory(report):
    """Failures in the tracker's highest memory."""
    tracker = report["tracker"]
    return excess(tracker["memory"][0], tracker["memory"][1], tracker["peers"][1] - tracker["peers"][0])


def growth(report):
    """Failures in the growth of the tracker's memory."""
    tracker = report["tracker"]
    if unknown_growth(report):
        return []
    unexplained = tracker["memory_slope"] - max(0, tracker["peers_slope"]) * PEER_BYTES
    leaked = unexplained * report["seconds"] / 4
    if leaked <= LEAK_BYTES:
        return []
    return [f"memory grew by {leaked:.0f} bytes from the third quarter to the fourth beside that of new peers"]


def unknown_growth(report):
    """Whether the tracker's memory was read too rarely to judge its growth."""
    return ["the growth of memory is unknown"] if report["tracker"]["memory_slope"] is None else []


def excess(before, highest, new_peers):
    """Failures in the highest memory of a tracker that got this number of peers."""
    bound = before + max(0, new_peers) * PEER_BYTES + TABLE_BYTES
    return [f"memory {highest:.0f} bytes exceeds {bound:.0f}"] if highest > bound else []

"""The rows of scripts/attack-test: each runs a tracker of its own and returns its report and what failed."""

import dataclasses
import json
import subprocess
import tempfile
import time

import peers
import place

# Attacks in the order of `onrush-load attack --help`; bursts have a row of their own.
ATTACKS = ["connects", "guessed-ids", "random-hashes", "hot-hash", "one-prefix", "scrapes", "junk", "bad-checksums"]
SPOOFED = {"connects", "guessed-ids", "junk", "bad-checksums", "bursts"}
# Memory of a tracker under attack: per peer, and for tables.
PEER_BYTES, TABLE_BYTES = 69, 64 << 20
# A row that failed is repeated where the tracker waited for its vCPU for more than this share of the time: another
# program used it.
DISTURBED, ATTEMPTS = 0.05, 3


@dataclasses.dataclass
class Settings:
    honest: int
    rate: int
    seconds: float
    p99: float

    @classmethod
    def quick(cls):
        """For a machine with other work: the p99 is a bound on harm, not a target."""
        return cls(honest=5000, rate=15_000, seconds=8, p99=50)

    @classmethod
    def full(cls):
        return cls(honest=40_000, rate=120_000, seconds=12, p99=10)


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
        return json.load(file)


def percent(of):
    """Answered requests in percent; 0 without requests, which `onrush-load attack` counts as a failure."""
    return of["answered"] * 100 / max(1, of["requests"])


def balance(report):
    """sent - received - dropped, and received - answered - refused."""
    found = report["conservation"]
    dropped, refused = sum(found["dropped"].values()), sum(found["refused"].values())
    return (sum(found["sent"]) - found["received"] - dropped, found["received"] - found["answered"] - refused)


def memory(report):
    """What is wrong with the tracker's memory."""
    tracker = report["tracker"]
    before, highest, _ = tracker["memory"]
    grown = max(0, tracker["peers"][1] - tracker["peers"][0])
    bound = before + grown * PEER_BYTES + TABLE_BYTES
    return [f"memory {highest:.0f} bytes exceeds {bound:.0f}"] if highest > bound else []


def undisturbed(measure):
    """Repeats `measure` with a fresh tracker while it fails and other programs use the tracker's vCPU."""
    def row(where, settings, config="", workers=1):
        for attempt in range(1, ATTEMPTS + 1):
            with where.tracker(config, workers) as process:
                started, waited = time.monotonic(), place.waited(process.pid)
                result = measure(where, settings)
                share = (place.waited(process.pid) - waited) / (time.monotonic() - started)
            result.update(attempts=attempt, waited_percent=round(share * 100, 2))
            if not result["failures"] or share < DISTURBED:
                break
        if result["failures"] and share >= DISTURBED:
            result["failures"].append(f"(other programs kept the tracker waiting for {share:.0%} of the time)")
        return result
    return row


def flood(name):
    """An attack at the rates of the settings."""
    @undisturbed
    def row(_, settings):
        bounds = ["--min-established", 99.9, "--min-newcomers", 99, "--max-p99", settings.p99]
        report = attack(name, *bounds, honest=settings.honest, rate=settings.rate, seconds=settings.seconds)
        failures = report["failures"] + memory(report)
        sent, due = report["conservation"]["sent"][2], settings.rate * settings.seconds
        if sent < due * 0.9:
            failures.append(f"the attack did not take place: {sent} of {due:.0f} datagrams were sent")
        return dict(report=report, failures=failures)
    return row


def bursts(where, settings):
    """1 % of the time, at a rate that overflows the receive buffer of an idle tracker."""
    @undisturbed
    def row(_, settings):
        bounds = ["--min-established", 99, "--min-newcomers", 98, "--max-step", 0]
        shape = ["--period", 5, "--burst", 0.05]
        report = attack("bursts", *shape, *bounds, honest=500, rate=800_000, seconds=16)
        failures = report["failures"] + memory(report)
        if not report["conservation"]["dropped"]["no room"]:
            failures.append("no burst has overflowed the receive buffer")
        return dict(report=report, failures=failures)
    # Small, so that it overflows whatever the speed of this machine.
    return row(where, settings, config="[socket]\nreceive_buffer = 262_144\n")


def trickle(where, settings):
    """100 bad checksums per second: no overload, and requests still arrive at the worker of their shard."""
    @undisturbed
    def row(_, settings):
        bounds = ["--min-established", 99.9, "--min-newcomers", 99, "--max-step", 0]
        report = attack("bad-checksums", *bounds, honest=500, rate=100, seconds=15)
        requests = {way: report["counters"].get(f'onrush_shard_requests_total{{way="{way}"}}', 0)
                    for way in ("local", "foreign")}
        announces = sum(count for name, count in report["counters"].items() if name.startswith("onrush_announces_total"))
        # Half of a scrape's hashes are another worker's. Without steering half of the announces are, too.
        foreign = requests["foreign"] - (sum(requests.values()) - announces) / 2
        failures = list(report["failures"])
        if foreign > announces * 0.25:
            failures.append(f"steering is off: {foreign:.0f} of {announces} announces reach another worker")
        return dict(report=report, failures=failures)
    return row(where, settings, workers=2)


def one_source(where, settings):
    """One address at 20,000 announces/s: at most 1 % of the peers, and a new swarm of others works."""
    limit, swarms = 1_000_000, 50

    @undisturbed
    def row(_, settings):
        report = attack("random-hashes", "--attackers", 1, "--swarms", swarms, honest=200, rate=20_000,
                        seconds=settings.seconds, targets=place.TARGETS[:2])
        failures = list(report["failures"])
        grown = report["tracker"]["peers"][1] - report["tracker"]["peers"][0]
        # The honest swarms have four peers each on average.
        most = limit // 100 + swarms * 8
        if grown > most:
            failures.append(f"{grown:.0f} new peers, more than {most}")
        if not peers.meet():
            failures.append("two honest peers of a new swarm do not meet")
        return dict(report=report, failures=failures)
    return row(where, settings, config=f"[limits]\npeers = {limit}\nsource_new_swarms = 0\n")


def one_source_ports(where, _):
    """65,534 ports of one address in a swarm of 200."""
    with where.tracker():
        share = peers.honest_share(honest=200, ports=65_534)
    failures = [] if share >= 0.7 else [f"honest peers are {share:.2%} of lists, less than 70 %"]
    return dict(honest_share=share, figure=f"{share:.2%} of lists", failures=failures)


def limited(where, name, config, share, settings, seconds):
    """The report on a tracker limited to a share of a vCPU, and how it was limited."""
    with where.tracker(config) as process, place.limited(process, share) as way:
        return attack(name, honest=settings.honest, rate=settings.rate * 4, seconds=seconds), way


def half(name):
    """A tracker that can do half of what arrives: with shedding no worse for newcomers than without."""
    def row(where, settings):
        for attempt in range(1, 3):
            # Larger batches take less time per request, so the share is found by trying.
            share, tries = 0.08, 0
            while True:
                off, way = limited(where, name, "[overload]\ndrop_share = 0\n", share, settings, 6)
                done = off["conservation"]["received"] / sum(off["conservation"]["sent"])
                tries += 1
                if 0.4 <= done <= 0.6 or tries == 4:
                    break
                share = min(0.9, max(0.01, share * max(0.4, 0.5 / done)))
            on, _ = limited(where, name, "", share, settings, 12)
            # A loss is expected here; the balance must hold.
            failures = [f"{which}: {failure}" for which, report in (("with", on), ("without", off))
                        for failure in report["failures"]]
            newcomers, established = ([percent(report[kind]) for report in (on, off)]
                                      for kind in ("newcomers", "established"))
            if newcomers[0] < newcomers[1] - 5:
                failures.append(f"newcomers: {newcomers[0]:.1f} % with shedding, {newcomers[1]:.1f} % without")
            if established[0] <= established[1]:
                failures.append(f"established: {established[0]:.1f} % with shedding, {established[1]:.1f} % without")
            if not 0.3 <= done <= 0.7:
                failures.append(f"no limit was found at which half is received: {done:.0%} at {share:.1%} of a vCPU")
            if not failures:
                break
        return dict(report=on, without_shedding=off, limited_by=way, share_of_vcpu=share, attempts=attempt,
                    failures=failures)
    return row


def highest_rate():
    """The highest rate of honest requests within 0.1 % loss and 10 ms."""
    command = [*place.TIED, place.BIN / "onrush-load", "--find-max", "--round", 1, "--duration", 3, "--quiet",
               "--json", "-", *place.TARGETS, *place.HONEST]
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=300)
    found = json.loads(done.stdout)["search"]["found"] if done.stdout else None
    if not found:
        raise RuntimeError(f"no highest rate: {done.stderr[-2000:]}")
    return found


def soak(minutes, parts=6):
    """70 % of the highest rate in six parts of the same tracker: memory and latency do not grow."""
    def row(where, _):
        with where.tracker():
            rate = int(highest_rate() * 0.7)
        reports, failures = [], []
        with where.tracker():
            for part in range(parts):
                report = attack("guessed-ids", "--min-established", 99.9, "--min-newcomers", 99, "--seed", 7,
                                honest=rate, rate=100, seconds=minutes * 60 / parts)
                failures += [f"part {part + 1}: {failure}" for failure in report["failures"]]
                reports.append(report)
        # The first part fills the swarms.
        later = reports[1:]
        for name, allowed in [("p50", lambda us: us * 1.5 + 100), ("p99", lambda us: us * 2 + 5000)]:
            figures = [report["established"]["latency"][name] for report in later]
            if figures[-1] > allowed(min(figures[:-1])):
                failures.append(f"{name} rose from {min(figures[:-1]):.0f} to {figures[-1]:.0f} us")
        grown = later[-1]["tracker"]["memory"][2] - later[0]["tracker"]["memory"][2]
        if grown > 2 << 20:
            failures.append(f"memory grew by {grown / 2**20:.1f} MiB after the first part")
        return dict(report=reports[-1], parts=reports, rate=rate, failures=failures)
    return row


ROWS = [
    *[(name, flood(name)) for name in ATTACKS],
    ("bursts", bursts),
    ("bad-checksums-trickle", trickle),
    ("one-source", one_source),
    ("one-source-ports", one_source_ports),
    ("half-connects", half("connects")),
    ("half-guessed-ids", half("guessed-ids")),
]


def names():
    return [name for name, _ in ROWS]

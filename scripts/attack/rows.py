"""The rows of scripts/attack-test: each runs a tracker of its own and returns its report and what failed."""

import dataclasses
import json
import statistics
import subprocess
import tempfile
import time

import peers
import place

# Attacks in the order of `onrush-load attack --help`, but bursts, which are not sent all the time.
ATTACKS = ["connects", "guessed-ids", "random-hashes", "hot-hash", "one-prefix", "scrapes", "junk", "bad-checksums"]
SPOOFED = {"connects", "guessed-ids", "junk", "bad-checksums", "bursts"}
# Memory of a tracker under attack: per peer, and for tables.
PEER_BYTES, TABLE_BYTES = 69, 64 << 20
UNSHED = "[overload]\ndrop_share = 0\n"
# Growth of memory in the second half of a row, beyond that of new peers, which is no leak. jemalloc takes memory in
# groups of pages and returns unused ones after up to ten seconds: without a leak it was found from -0.6 to +0.1 MiB.
# 1 MiB is a byte per datagram with --full, and 13 without, so a leak of an allocation per datagram fails a row.
LEAK_BYTES = 1 << 20
# A row that failed is repeated where other programs kept the tracker from its vCPU for more than this share of time.
DISTURBED, ATTEMPTS = 0.05, 3


@dataclasses.dataclass
class Settings:
    honest: int
    rate: int
    seconds: float
    p99: float
    # Whether a comparison that holds is repeated.
    all_runs: bool

    @classmethod
    def quick(cls):
        """For a machine with other work: the p99 is a bound on harm, not a target."""
        return cls(honest=5000, rate=15_000, seconds=8, p99=50, all_runs=False)

    @classmethod
    def full(cls):
        return cls(honest=40_000, rate=120_000, seconds=12, p99=10, all_runs=True)


def attack(name, *more, honest, rate, seconds, targets=place.TARGETS):
    """The report of `onrush-load attack`, with the verdict on the tracker's memory."""
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
        report["failures"] += memory(report)
        return report


def percent(of):
    """Answered requests in percent; 0 without requests, which `onrush-load attack` counts as a failure."""
    return of["answered"] * 100 / max(1, of["requests"])


def balance(report):
    """sent - received - dropped, and received - answered - refused."""
    found = report["conservation"]
    dropped, refused = sum(found["dropped"].values()), sum(found["refused"].values())
    return (sum(found["sent"]) - found["received"] - dropped, found["received"] - found["answered"] - refused)


def memory(report):
    """What is wrong with the tracker's memory: its highest value, and its growth without new peers after a warm-up."""
    tracker = report["tracker"]
    before, highest, _ = tracker["memory"]
    failures = excess(before, highest, tracker["peers"][1] - tracker["peers"][0])
    unexplained = tracker["memory_slope"] - max(0, tracker["peers_slope"]) * PEER_BYTES
    leaked = unexplained * report["seconds"] / 2
    if leaked > LEAK_BYTES:
        failures.append(f"memory grew by {leaked:.0f} bytes in the second half beside that of new peers")
    return failures


def excess(before, highest, new_peers):
    """What is wrong with the highest memory of a tracker that got this number of peers."""
    bound = before + max(0, new_peers) * PEER_BYTES + TABLE_BYTES
    return [f"memory {highest:.0f} bytes exceeds {bound:.0f}"] if highest > bound else []


def on_tracker(config="", workers=1):
    """A row on a tracker of its own, repeated with a fresh one while it fails and other programs use the vCPU."""
    def decorate(measure):
        def row(where, settings):
            for attempt in range(1, ATTEMPTS + 1):
                with where.tracker(config, workers) as process:
                    started, before = time.monotonic(), place.times(process.pid)
                    result = measure(settings)
                    share = place.kept_waiting(before, place.times(process.pid)) / (time.monotonic() - started)
                if workers > 1:
                    result["failures"] += steering(result["report"])
                result.update(attempts=attempt, waited_percent=round(share * 100, 2))
                if not result["failures"] or share < DISTURBED:
                    break
            if result["failures"] and share >= DISTURBED:
                result["failures"].append(f"(other programs kept the tracker waiting for {share:.0%} of the time)")
            return result
        return row
    return decorate


def flood(name, *more, duty=1):
    """An attack at the rates of the settings, for this share of the time."""
    @on_tracker()
    def row(settings):
        bounds = ["--min-established", 99.9, "--min-newcomers", 99, "--max-p99", settings.p99]
        report = attack(name, *bounds, *more, honest=settings.honest, rate=settings.rate, seconds=settings.seconds)
        failures = list(report["failures"])
        sent, due = report["flood"]["sent"], settings.rate * settings.seconds * duty
        if sent < due * 0.9:
            failures.append(f"the attack did not take place: {sent} of {due:.0f} datagrams were sent")
        return dict(report=report, failures=failures)
    return row


# Small, so that bursts overflow it whatever the speed of this machine.
@on_tracker(config="[socket]\nreceive_buffer = 262_144\n", workers=2)
def overflowing_bursts(settings):
    """1 % of the time, at a rate that overflows the receive buffers of idle workers: what does not fit is lost."""
    bounds = ["--min-established", 99, "--min-newcomers", 98, "--max-step", 0]
    shape = ["--period", 5, "--burst", 0.05]
    report = attack("bursts", *shape, *bounds, honest=500, rate=800_000, seconds=16)
    failures = list(report["failures"])
    if not report["conservation"]["dropped"]["no room"]:
        failures.append("no burst has overflowed the receive buffer")
    return dict(report=report, failures=failures)


@on_tracker(workers=2)
def trickle(settings):
    """100 bad checksums per second: no overload, and requests still arrive at the worker of their shard."""
    bounds = ["--min-established", 99.9, "--min-newcomers", 99, "--max-step", 0]
    report = attack("bad-checksums", *bounds, honest=500, rate=100, seconds=15)
    return dict(report=report, failures=list(report["failures"]))


def steering(report):
    """What is wrong with the steering of requests to the worker of their shard, of two workers."""
    requests = {way: report["counters"].get(f'onrush_shard_requests_total{{way="{way}"}}', 0)
                for way in ("local", "foreign")}
    announces = sum(count for name, count in report["counters"].items() if name.startswith("onrush_announces_total"))
    # Half of a scrape's hashes are another worker's. Without steering half of the announces are, too.
    foreign = requests["foreign"] - (sum(requests.values()) - announces) / 2
    if foreign > announces * 0.25:
        return [f"steering is off: {foreign:.0f} of {announces} announces reach another worker"]
    return [] if announces else ["no announces, which would show whether steering is on"]


ONE_SOURCE_LIMIT, ONE_SOURCE_SWARMS = 1_000_000, 50


@on_tracker(config=f"[limits]\npeers = {ONE_SOURCE_LIMIT}\nsource_new_swarms = 0\n")
def one_source(settings):
    """One address at 20,000 announces/s: at most 1 % of the peers, and a new swarm of others works."""
    report = attack("random-hashes", "--attackers", 1, "--swarms", ONE_SOURCE_SWARMS, honest=200, rate=20_000,
                    seconds=settings.seconds, targets=place.TARGETS[:2])
    failures = list(report["failures"])
    grown = report["tracker"]["peers"][1] - report["tracker"]["peers"][0]
    # The honest swarms have four peers each on average.
    most = ONE_SOURCE_LIMIT // 100 + ONE_SOURCE_SWARMS * 8
    if grown > most:
        failures.append(f"{grown:.0f} new peers, more than {most}")
    if not peers.meet():
        failures.append("two honest peers of a new swarm do not meet")
    return dict(report=report, failures=failures)


def one_source_ports(where, _):
    """65,534 ports of one address in a swarm of 200."""
    honest, ports = 200, 65_534
    with where.tracker() as process:
        before = place.highest_memory(process.pid)
        share = peers.honest_share(honest, ports)
        failures = excess(before, place.highest_memory(process.pid), honest + ports)
    if share < 0.7:
        failures.append(f"honest peers are {share:.2%} of lists, less than 70 %")
    return dict(honest_share=share, figure=f"{share:.2%} of lists", failures=failures)


def limited(where, name, config, share, settings, seconds):
    """The report on a tracker limited to a share of a vCPU, and how it was limited."""
    with where.tracker(config) as process, place.limited(process, share) as way:
        # Of so many newcomers the percentage is exact to a point.
        return attack(name, "--newcomers", 1000, honest=settings.honest, rate=settings.rate * 4,
                      seconds=seconds), way


def received(report):
    """The part of all datagrams that the tracker received."""
    return report["conservation"]["received"] / sum(report["conservation"]["sent"])


def half_served(where, name, settings):
    """The share of a vCPU with which half of an attack is received without shedding, and the report on it."""
    # Larger batches take less time per request, so the share is found by trying.
    share, tries = 0.08, 4
    while True:
        report, way = limited(where, name, UNSHED, share, settings, 6)
        tries -= 1
        done = received(report)
        if 0.4 <= done <= 0.6 or not tries:
            return share, way, report
        share = min(0.9, max(0.01, share * max(0.4, 0.5 / done)))


def half(name):
    """A tracker that can do half of what arrives: with shedding newcomers are served no worse, established clients
    better. Runs with and without shedding alternate, and each with shedding is compared with the mean of those before
    and after it: the capacity of a shared machine changes. More runs follow where the first comparison fails, and the
    median counts."""
    def row(where, settings):
        share, way, first = half_served(where, name, settings)
        shed, unshed, gains = [], [first], {"newcomers": [], "established": []}
        for _ in range(5):
            shed.append(limited(where, name, "", share, settings, 12)[0])
            unshed.append(limited(where, name, UNSHED, share, settings, 6)[0])
            for kind, values in gains.items():
                values.append(percent(shed[-1][kind]) - statistics.mean(percent(report[kind]) for report in unshed[-2:]))
            newcomers, established = map(statistics.median, gains.values())
            if newcomers >= -5 and established > 0 and not (settings.all_runs and len(shed) < 3):
                break
        # Loss is expected here; the balance must hold.
        failures = [failure for report in shed + unshed for failure in report["failures"]]
        if newcomers < -5:
            failures.append(f"newcomers: {newcomers:+.1f} points by shedding (median of {len(shed)})")
        if established <= 0:
            failures.append(f"established clients: {established:+.1f} points by shedding (median of {len(shed)})")
        done = statistics.median(map(received, unshed))
        if not 0.3 <= done <= 0.7:
            failures.append(f"no limit was found at which half is received: {done:.0%} at {share:.1%} of a vCPU")
        return dict(report=shed[-1], with_shedding=shed, without_shedding=unshed, gains=gains, limited_by=way,
                    share_of_vcpu=share, failures=failures)
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
    ("bursts", flood("bursts", "--period", 2, "--burst", 0.02, "--max-step", 0, duty=0.01)),
    ("bursts-overflow", overflowing_bursts),
    ("bad-checksums-trickle", trickle),
    ("one-source", one_source),
    ("one-source-ports", one_source_ports),
    ("half-connects", half("connects")),
    ("half-guessed-ids", half("guessed-ids")),
]


def names():
    return [name for name, _ in ROWS]

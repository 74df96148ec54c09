"""The rows of scripts/attack-test: each runs a tracker of its own and returns its report and what failed."""

import dataclasses
import itertools
import json
import subprocess
import sys

import admin
import half
import load
import peers
import place

# Attacks in the order of `onrush-load attack --help`, but `bursts`, which has a row of its own.
ATTACKS = ["connects", "guessed-ids", "random-hashes", "hot-hash", "one-prefix", "scrapes", "junk", "bad-checksums"]


@dataclasses.dataclass
class Settings:
    honest: int
    rate: int
    seconds: float
    # Milliseconds.
    p99: float
    # Runs of a row that was disturbed and is out of bounds, and comparisons of a row of half.py.
    attempts: int
    comparisons: int
    # Whether a row fails that is out of bounds in every run, and was disturbed in each.
    strict: bool

    @classmethod
    def quick(cls):
        """For a machine with other work: the p99 is a bound on harm, not a target."""
        return cls(honest=5000, rate=15_000, seconds=6, p99=50, attempts=2, comparisons=2, strict=False)

    @classmethod
    def full(cls):
        return cls(honest=40_000, rate=120_000, seconds=12, p99=10, attempts=3, comparisons=3, strict=True)

    def verdict(self, result):
        """`failures` count on any machine; `slow`, what is out of bounds, where nothing disturbed the run."""
        if result["failures"] or result["slow"] and (self.strict or not result["disturbances"]):
            return "FAILED"
        return "DISTURBED" if result["slow"] else "ok"


# Seconds of a run on a tracker of its own at most: connection ids are valid for as long, and peers.py renews none.
MOST_SECONDS = 120


def on_tracker(config="", workers=1):
    """A row on a tracker of its own, repeated with a fresh one while it is slow and was disturbed."""
    def decorate(measure):
        def row(where, settings):
            def once():
                with where.tracker(config, workers) as process:
                    watch = place.Watch(where, process.pid)
                    try:
                        with place.time_limit(MOST_SECONDS):
                            result = dict(dict(slow=[]), **measure(settings, process))
                    except load.ERRORS as error:
                        result = dict(failures=[], slow=[f"it ended with an error: {error}"])
                    result["disturbances"] = late(result.get("report"), settings) + watch.disturbances()
                if "report" in result:
                    result["failures"] += load.judged(result["report"])
                    result["slow"] += load.unknown_growth(result["report"])
                    result["slow"] += steering(result["report"]) if workers > 1 else []
                return result
            return repeat(once, settings)
        return row
    return decorate


def repeat(once, settings):
    """The last result of `once`, repeated while it is slow and was disturbed."""
    repeated = []
    while True:
        result = once()
        last = len(repeated) == settings.attempts - 1
        if result["failures"] or not result["slow"] or not result["disturbances"] or last:
            return dict(result, repeated=repeated)
        repeated.append(result)


def late(report, settings):
    """Datagrams that the load did not send in time."""
    if report is None:
        return []
    behind = report["behind"]["p99"] / 1000
    late = [f"the load was {behind:.0f} ms late"] if behind > settings.p99 / 5 else []
    return late + (["the load was incomplete"] if load.unsent(report) else [])


def flood(name):
    """An attack at the rates of the settings."""
    @on_tracker()
    def row(settings, _):
        report = load.attack(name, honest=settings.honest, rate=settings.rate, seconds=settings.seconds)
        return dict(report=report, failures=[],
                    slow=load.slow(report, established=99.9, newcomers=99, p99=settings.p99))
    return row


# Small, so that bursts overflow it whatever the speed of this machine.
@on_tracker(config="[socket]\nreceive_buffer = 32_768\n", workers=2)
def overflowing_bursts(*_):
    """1 % of the time, at a rate that overflows the receive buffers of idle workers: what does not fit is lost."""
    # Four whole periods.
    report = load.attack("bursts", "--period", 5, "--burst", 0.05, honest=500, rate=800_000, seconds=20)
    slow = load.slow(report, established=98.5, newcomers=98, step=0)
    if not report["conservation"]["dropped"]["no room"]:
        slow.append("no burst has overflowed the receive buffer")
    return dict(report=report, failures=[], slow=slow)


@on_tracker(workers=2)
def trickle(*_):
    """100 bad checksums per second: no overload, and requests still arrive at the worker of their shard."""
    report = load.attack("bad-checksums", honest=500, rate=100, seconds=10)
    return dict(report=report, failures=[], slow=load.slow(report, established=99.9, newcomers=99, step=0))


def steering(report):
    """Failures in the steering of requests to the worker of their shard, of two workers."""
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
def one_source(settings, _):
    """One address at 20,000 announces/s: at most 1 % of the peers, and a new swarm of others works."""
    report = load.attack("random-hashes", "--attackers", 1, "--swarms", ONE_SOURCE_SWARMS, honest=200, rate=20_000,
                    seconds=settings.seconds, targets=place.TARGETS[:2])
    failures = []
    grown = report["tracker"]["peers"][1] - report["tracker"]["peers"][0]
    # The honest swarms have four peers each on average.
    most = ONE_SOURCE_LIMIT // 100 + ONE_SOURCE_SWARMS * 8
    if grown > most:
        failures.append(f"{grown:.0f} new peers, more than {most}")
    if not peers.meet():
        failures.append("two honest peers of a new swarm do not meet")
    return dict(report=report, failures=failures, slow=load.slow(report))


@on_tracker()
def one_source_ports(_, process):
    """65,534 ports of one address in a swarm of 200."""
    return lists(process, ["10.80.0.1"], 65_534)


@on_tracker()
def one_network_lists(_, process):
    """16 addresses of a /24 in a swarm of 100 seeders and 100 leechers, each with more ports than it may have there."""
    return lists(process, peers.sources("10.80.0.0/24", 16), 128)


def lists(process, attackers, ports):
    honest = 200
    before = place.highest_memory(process.pid)
    share = peers.honest_share(honest, attackers, ports)
    failures = load.excess(before, place.highest_memory(process.pid), honest + len(attackers) * ports)
    failures += less("honest peers in lists", share, 0.7)
    return dict(honest_share=share, figure=f"{share:.2%} of lists", failures=failures)


def less(what, share, least):
    """Failures in a share."""
    return [f"{what}: {share:.2%}, less than {least:.1%}"] if share < least else []


def full(version, block):
    """A full tracker, 65,536 sources of one /16 or /32: a source within its limit loses a sixteenth of its peers per
    minute at most, and newcomers find room."""
    @on_tracker(config="[limits]\npeers = 100_000\n")
    def row(*_):
        kept, stored, minutes = peers.crowded(version, block, 65_536)
        # The tracker's counts of replaced peers may be too low by some.
        least = (15 / 16) ** minutes - 0.01
        failures = less("peers of a source of 800 that stay", kept, least) + less("newcomers stored", stored, 0.8)
        return dict(kept=kept, least=least, stored=stored, figure=f"kept {kept:.1%}, new {stored:.1%}",
                    failures=failures)
    return row


@on_tracker(config="[limits]\nidle_swarms = 10_000\n")
def idle_counts(*_):
    """More idle swarms than are stored, with a `completed` repeated by one source: those with a `completed` of three
    sources stay."""
    kept, evicted = peers.kept_counts(peers.sources("10.80.0.0/24", 16), 11_000)
    failures = [f"{kept} of 70 counts are kept"] if kept < 70 else []
    failures += [] if evicted else ["no idle swarm was evicted"]
    return dict(kept=kept, evicted=evicted, figure=f"{kept} of 70 kept", failures=failures)


@on_tracker()
def admin_pipelining(*_):
    """64 connections of four addresses with pipelined requests at the admin side: others are served."""
    with admin.Pipelining(peers.sources("10.80.0.0/24", 4), 16) as busy:
        statuses = []
        for source in peers.networks(60):
            statuses.append(admin.status(source, "/stats.json"))
            busy.over.wait(0.25)
    served = statuses.count(200)
    failures = [f"{served} of 60 requests got status 200"] if served < 60 else []
    return dict(served=served, figure=f"{served} of 60 served", failures=failures)


# Bursts of a flood of connects: seconds from one to the next, and of each.
PATTERNS = [(16, 1), (14, 2), (16, 0.3)]


def alternating(where, settings):
    """The comparison of bursts, repeated while it is slow and was disturbed."""
    return repeat(lambda: bursts(where, settings), settings)


def bursts(where, settings):
    """Bursts that begin under pressure: no connect is dropped, and newcomers fare as in a tracker that sheds nothing.

    The tracker has a tenth of a vCPU, so that the bursts exceed what it can do.
    """
    watch, reports, shares, failures, slow, disturbances = place.Watch(where), [], ([], []), [], [], []
    try:
        # Runs that are compared follow each other: the capacity of a shared machine changes.
        for (period, burst), (config, of) in itertools.product(PATTERNS, zip(("", half.UNFILTERED), shares)):
            with where.tracker(config) as process, place.limited(process, 0.1):
                reports.append(load.attack("connects", honest=200, rate=150_000, seconds=8))
                if not config and not reports[-1]["tracker"]["step"][0]:
                    behind = late(reports[-1], settings)
                    (slow if behind else failures).append("the flood before the bursts has led to no step")
                    disturbances += behind
                reports.append(load.attack(
                    "bursts", "--period", period, "--burst", burst, "--newcomers", 300, honest=200, rate=150_000,
                    seconds=period * (3 if settings.strict else 2)))
            of.append(load.percent(reports[-1]["newcomers"]))
    except load.ERRORS as error:
        slow.append(f"it ended with an error: {error}")
    for report in reports:
        failures += report["failures"] + load.memory(report)
        if half.filtered(report):
            failures.append(f"{half.filtered(report)} datagrams were shed, though all are connects or valid")
    for (period, burst), shed, plain in zip(PATTERNS, *shares):
        if shed < plain - 2:
            slow.append(f"{burst} s of {period}: {shed:.1f} % of newcomers, without shedding {plain:.1f} %")
    note = "newcomers " + ", ".join(f"{shed:.1f} ({plain:.1f})" for shed, plain in zip(*shares)) + " %"
    result = dict(reports=reports, newcomers=shares, note=note, failures=failures, slow=slow,
                  disturbances=disturbances + watch.disturbances())
    return dict(result, report=reports[-1]) if reports else result


def highest_rate():
    """The highest rate of the soak's own load within 0.1 % loss and 10 ms.

    `--find-max` stops at a rate that a plain load reaches for seconds. This load also checks each source by itself,
    sends an attack and adds newcomers, and is the slower one.
    """
    command = [*place.TIED, place.BIN / "onrush-load", "--find-max", "--round", 1, "--duration", 3, "--quiet",
               "--json", "-", *place.TARGETS, *place.HONEST]
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=300)
    rate = json.loads(done.stdout)["search"]["found"] if done.stdout else None
    if not rate:
        raise RuntimeError(f"no highest rate: {done.stderr[-2000:]}")
    while rate > 10_000:
        report = load.attack("guessed-ids", honest=int(rate), rate=100, seconds=8)
        if not load.slow(report, established=99.9, newcomers=99, p99=10):
            return rate
        rate *= 0.92
    raise RuntimeError("no rate above 10,000 requests/s is answered within 0.1 % loss and 10 ms")


def progress(text):
    print(f"soak: {text}", file=sys.stderr, flush=True)


def soak(minutes, parts=6):
    """70 % of the highest rate in six parts of the same tracker: memory and latency do not grow.

    Latency and loss are judged in the parts that nothing disturbed, which have to be half of them.
    """
    def row(where, settings):
        with where.tracker():
            rate = int(highest_rate() * 0.7)
        progress(f"{rate} requests/s in {parts} parts of {minutes * 60 / parts:.0f} s")
        reports, failures, disturbances, judged = [], [], [], []
        with where.tracker() as process:
            for part in range(parts):
                watch = place.Watch(where, process.pid)
                report = load.attack("guessed-ids", "--seed", 7, honest=rate, rate=100, seconds=minutes * 60 / parts)
                disturbed = late(report, settings) + watch.disturbances()
                wrong = load.judged(report) + load.unknown_growth(report)
                if disturbed:
                    disturbances += [f"part {part + 1}: {cause}" for cause in disturbed]
                else:
                    wrong += load.slow(report, established=99.9, newcomers=99)
                    judged.append(report)
                failures += [f"part {part + 1}: {failure}" for failure in wrong]
                reports.append(report)
                progress(f"part {part + 1}: p99 {report['established']['latency']['p99'] / 1000:.1f} ms"
                         + "".join(f"; {cause}" for cause in disturbed + wrong))
        if len(judged) < parts / 2:
            failures.append(f"only {len(judged)} of {parts} parts were not disturbed")
        # The first part fills the swarms.
        later = reports[1:]
        for name, allowed in [("p50", lambda us: us * 1.5 + 100), ("p99", lambda us: us * 2 + 5000)]:
            figures = [report["established"]["latency"][name] for report in judged if report in later]
            if figures[1:] and figures[-1] > allowed(min(figures[:-1])):
                failures.append(f"{name} rose from {min(figures[:-1]):.0f} to {figures[-1]:.0f} us")
        grown = later[-1]["tracker"]["memory"][2] - later[0]["tracker"]["memory"][2]
        if grown > 2 << 20:
            failures.append(f"memory grew by {grown / 2**20:.1f} MiB after the first part")
        note = f"{rate} requests/s; p99 of the parts judged " + ", ".join(
            f"{report['established']['latency']['p99'] / 1000:.1f}" for report in judged) + " ms"
        return dict(report=reports[-1], parts=reports, rate=rate, note=note, failures=failures, slow=[],
                    disturbances=disturbances)
    return row


ROWS = [
    *[(name, flood(name)) for name in ATTACKS],
    ("bursts-overflow", overflowing_bursts),
    ("bad-checksums-trickle", trickle),
    ("one-source", one_source),
    ("one-source-ports", one_source_ports),
    ("one-network-lists", one_network_lists),
    ("full-v4", full(4, "10.80.0.0/16")),
    ("full-v6", full(6, "fd80::/32")),
    ("idle-counts", idle_counts),
    ("admin-pipelining", admin_pipelining),
    ("bursts-after-flood", alternating),
    ("half-guessed-ids", half.row),
]


def names():
    return [name for name, _ in ROWS]

"""The rows of a tracker that can do half of what arrives: what load shedding costs newcomers, and gains."""

import statistics

import load
import place

UNSHED = "[overload]\ndrop_share = 0\n"
# Points by which load shedding has to change the answered requests at least. Established clients gained 4 to 17.
LEAST = dict(newcomers=-5, established=1)
# Further comparisons of a row if a median is within CLOSE points of its bound.
FURTHER, CLOSE = 2, 3
# Runs of a row that search for the limit.
TRIES = 6
# Length of every run. Shedding begins after some four seconds. Receive buffers take in thousands of datagrams beyond
# those served, which are more percent of a shorter run: only runs of the same length can be compared.
SECONDS = 10


def row(name):
    """With shedding newcomers are served no worse, established clients better.

    Runs with and without shedding alternate, and each with shedding is compared with the mean of those before and
    after it: the capacity of a shared machine changes. Medians count. The number of comparisons is fixed, but for more
    where a median is close to its bound.
    """
    def run(where, settings):
        half = Half(where, name, settings)
        watch = place.Watch(where)
        half.compare(settings.comparisons)
        if any(abs(gain - LEAST[kind]) < CLOSE for kind, gain in half.medians().items()):
            half.compare(settings.comparisons + FURTHER)
        return dict(half.result(), disturbances=watch.disturbances())
    return run


def received(report):
    """The part of all datagrams that the tracker received."""
    return report["conservation"]["received"] / sum(report["conservation"]["sent"])


def shed(report):
    """The number of datagrams that the filter in the kernel dropped."""
    return report["conservation"]["dropped"]["shed in the kernel"]


class Half:
    """A tracker limited to a share of a vCPU with which it receives about half, and the runs on it."""

    def __init__(self, where, name, settings):
        self.where, self.name, self.settings = where, name, settings
        # Larger batches take less time per request, so the share is found by trying.
        self.share, self.way, self.tries, self.before = 0.08, None, TRIES, None
        # All reports with and without shedding; the pairs to compare; what ended runs without a report.
        self.shed, self.unshed, self.pairs, self.errors = [], [], [], []

    def run(self, shedding):
        """The report of a run; None if it has none."""
        try:
            with (self.where.tracker("" if shedding else UNSHED) as process,
                  place.limited(process, self.share) as self.way):
                # With so many newcomers the percentage is exact to a point.
                report = load.attack(self.name, "--newcomers", 1000, honest=self.settings.honest,
                                     rate=self.settings.rate * 4, seconds=SECONDS)
        except load.ERRORS as error:
            self.errors.append(str(error))
            return None
        (self.shed if shedding else self.unshed).append(report)
        return report

    def search(self):
        """A run without shedding that receives half; None if none is found."""
        while self.tries:
            self.tries -= 1
            report = self.run(False)
            if report is None:
                continue
            done = received(report)
            if 0.4 <= done <= 0.6:
                return report
            self.share = min(0.9, max(0.01, self.share * min(2.5, max(0.4, 0.5 / max(done, 0.01)))))
        return None

    def compare(self, number):
        """Adds pairs up to this number. A pair is left out where a run without shedding shows that the capacity has
        changed, and the limit is searched again; each search takes one of a bounded number of tries."""
        while len(self.pairs) < number:
            self.before = self.before or self.search()
            if self.before is None:
                return
            with_shedding, after = self.run(True), self.run(False)
            if with_shedding and after and 0.3 <= received(after) <= 0.7:
                self.pairs.append((self.before, with_shedding, after))
                self.before = after
            else:
                self.before = None

    def medians(self):
        """By how many points shedding changes the answered requests; empty without comparisons."""
        def gains(kind):
            for before, with_shedding, after in self.pairs:
                without = statistics.mean([load.percent(before[kind]), load.percent(after[kind])])
                yield load.percent(with_shedding[kind]) - without
        return {kind: statistics.median(gains(kind)) for kind in LEAST if self.pairs}

    def result(self):
        compared = [report for pair in self.pairs for report in pair]
        # Loss is expected here; the balance must hold in every run. Runs are too short to judge growth of memory.
        failures = [f"the balance is off by {load.balance(report)}" for report in self.shed + self.unshed
                    if report not in compared and load.balance(report) != (0, 0)]
        for report in {id(report): report for report in compared}.values():
            failures += report["failures"] + load.memory(report)
        failures += [f"{shed(report)} datagrams were shed without load shedding"
                     for report in self.unshed if shed(report)]
        slow = ["nothing was shed with load shedding" for _, report, _ in self.pairs if not shed(report)]
        medians = self.medians()
        slow += [f"{kind}: {gain:+.1f} points by shedding, less than {LEAST[kind]:+} (median of {len(self.pairs)})"
                 for kind, gain in medians.items() if gain < LEAST[kind]]
        if len(self.pairs) < self.settings.comparisons:
            parts = ", ".join(f"{received(report):.0%}" for report in self.unshed)
            slow.append(f"only {len(self.pairs)} of {self.settings.comparisons} comparisons: no limit was found at "
                        f"which half is received without shedding, but {parts or 'nothing'}")
            slow += self.errors
        figure = ", ".join(f"{kind} {gain:+.1f}" for kind, gain in medians.items())
        result = dict(with_shedding=self.shed, without_shedding=self.unshed, gains=medians, limited_by=self.way,
                      share_of_vcpu=self.share, errors=self.errors, note=figure, failures=failures, slow=slow)
        return dict(result, report=self.pairs[-1][1]) if self.pairs else result

"""The row of a tracker that can do half of what arrives: what the kernel's filter gains in a flood of random ids."""

import statistics

import load
import place

ATTACK = "guessed-ids"
UNFILTERED = "[overload]\ndrop_share = 0\n"
# Points by which the filter has to change the answered requests at least. Medians were 8 to 11 for both.
LEAST = dict(newcomers=1, established=1)
# Further comparisons if a median is within CLOSE points of its bound.
FURTHER, CLOSE = 2, 3
# Runs that search for the limit.
TRIES = 6
# Length of every run. The filter begins after some four seconds. Receive buffers take in thousands of datagrams beyond
# those served, which are more percent of a shorter run: only runs of the same length can be compared.
SECONDS = 10


def row(where, settings):
    """With the filter newcomers and established clients are served better.

    Runs with and without it alternate, and each with it is compared with the mean of those before and after it: the
    capacity of a shared machine changes. Medians count. The number of comparisons is fixed, but for more where a
    median is close to its bound.
    """
    half = Half(where, settings)
    watch = place.Watch(where)
    half.compare(settings.comparisons)
    if any(abs(gain - LEAST[kind]) < CLOSE for kind, gain in half.medians().items()):
        half.compare(settings.comparisons + FURTHER)
    return dict(half.result(), disturbances=watch.disturbances())


def received(report):
    """The part of all datagrams that the tracker received."""
    return report["conservation"]["received"] / sum(report["conservation"]["sent"])


def filtered(report):
    """The number of datagrams that the filter in the kernel dropped."""
    return report["conservation"]["dropped"]["shed in the kernel"]


class Half:
    """A tracker limited to a share of a vCPU with which it receives about half, and the runs on it."""

    def __init__(self, where, settings):
        self.where, self.settings = where, settings
        # Larger batches take less time per request, so the share is found by trying.
        self.share, self.way, self.tries, self.before = 0.08, None, TRIES, None
        # All reports with and without the filter; the pairs to compare; what ended runs without a report.
        self.filtered, self.unfiltered, self.pairs, self.errors = [], [], [], []

    def run(self, with_filter):
        """The report of a run; None if it has none."""
        try:
            with (self.where.tracker("" if with_filter else UNFILTERED) as process,
                  place.limited(process, self.share) as self.way):
                # With so many newcomers the percentage is exact to a point.
                report = load.attack(ATTACK, "--newcomers", 1000, honest=self.settings.honest,
                                     rate=self.settings.rate * 4, seconds=SECONDS)
        except load.ERRORS as error:
            self.errors.append(str(error))
            return None
        (self.filtered if with_filter else self.unfiltered).append(report)
        return report

    def search(self):
        """A run without the filter that receives half; None if none is found."""
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
        """Adds pairs up to this number. A pair is left out where a run without the filter shows that the capacity has
        changed, and the limit is searched again; each search takes one of a bounded number of tries."""
        while len(self.pairs) < number:
            self.before = self.before or self.search()
            if self.before is None:
                return
            with_filter, after = self.run(True), self.run(False)
            if with_filter and after and 0.3 <= received(after) <= 0.7:
                self.pairs.append((self.before, with_filter, after))
                self.before = after
            else:
                self.before = None

    def medians(self):
        """By how many points the filter changes the answered requests; empty without comparisons."""
        def gains(kind):
            for before, with_filter, after in self.pairs:
                without = statistics.mean([load.percent(before[kind]), load.percent(after[kind])])
                yield load.percent(with_filter[kind]) - without
        return {kind: statistics.median(gains(kind)) for kind in LEAST if self.pairs}

    def result(self):
        compared = [report for pair in self.pairs for report in pair]
        # Loss is expected here; the balance must hold in every run. Runs are too short to judge growth of memory.
        failures = [f"the balance is off by {load.balance(report)}" for report in self.filtered + self.unfiltered
                    if report not in compared and load.balance(report) != (0, 0)]
        for report in {id(report): report for report in compared}.values():
            failures += report["failures"] + load.memory(report)
        failures += [f"{filtered(report)} datagrams were dropped by a filter that is off"
                     for report in self.unfiltered if filtered(report)]
        slow = ["the filter dropped nothing" for _, report, _ in self.pairs if not filtered(report)]
        medians = self.medians()
        slow += [f"{kind}: {gain:+.1f} points by the filter, less than {LEAST[kind]:+} (median of {len(self.pairs)})"
                 for kind, gain in medians.items() if gain < LEAST[kind]]
        if len(self.pairs) < self.settings.comparisons:
            parts = ", ".join(f"{received(report):.0%}" for report in self.unfiltered)
            slow.append(f"only {len(self.pairs)} of {self.settings.comparisons} comparisons: no limit was found at "
                        f"which half is received without the filter, but {parts or 'nothing'}")
            slow += self.errors
        figure = ", ".join(f"{kind} {gain:+.1f}" for kind, gain in medians.items())
        result = dict(with_filter=self.filtered, without_filter=self.unfiltered, gains=medians, limited_by=self.way,
                      share_of_vcpu=self.share, errors=self.errors, note=figure, failures=failures, slow=slow)
        return dict(result, report=self.pairs[-1][1]) if self.pairs else result

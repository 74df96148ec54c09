"""The targets, and whether they are met."""

from dataclasses import dataclass
from statistics import median

import load
from cpu import AQUATIC, COLOCATED, FLOOR, SPLIT


@dataclass
class Row:
    """A line of the table."""

    what: str
    target: str
    measured: str
    met: bool | None = None
    beside: str = ""


def rows(results):
    """The rows for which there are results."""
    found = []
    if "cpu" in results:
        found += cpu_rows(results["cpu"])
    if "load" in results:
        found += load_rows(results["load"])
    if "instructions" in results:
        found += instruction_rows(results["instructions"])
    if "time" in results:
        found += time_rows(results["time"])
    if "memory" in results:
        found += memory_rows(results["memory"])
    return found


def cpu_rows(cpu):
    """CPU time per reply as ratios within one run."""

    def ratio(what, scene, of, to, limit, of_name, beside=""):
        mine, other = cpu[scene][of].median(), cpu[scene][to].median()
        return Row(what, f"<= {limit:.2f} of {of_name}", f"{mine / other:.2f} ({mine:.2f} us)",
                   mine / other <= limit, beside or f"{of_name} {other:.2f} us")

    return [
        ratio("CPU per reply, classic mix", "classic", COLOCATED, AQUATIC, 0.85, AQUATIC),
        ratio("the same, driven by aquatic_udp_load_test", "aquatic_udp_load_test", COLOCATED, AQUATIC,
              0.85, AQUATIC),
        ratio("CPU per reply, real mix", "real", COLOCATED, AQUATIC, 0.85, AQUATIC),
        ratio("CPU per reply, clients repeat within a batch", "classic, clients repeat", COLOCATED,
              AQUATIC, 0.50, AQUATIC),
        ratio("CPU per reply over the floor, classic mix", "classic", COLOCATED, FLOOR, 1.12, "the floor"),
        ratio("the same with IP_PKTINFO", "classic, any address", COLOCATED, FLOOR, 1.12, "the floor"),
        ratio("split placement on one vCPU", "classic", SPLIT, COLOCATED, 1.10, "colocated"),
    ]


def load_rows(spent):
    """CPU time of onrush-load relative to aquatic's load tester, which checks no replies: the median of the
    ratios of each round."""
    found = []
    for server, by_tester in spent.items():
        for name, manner, limit in ((load.BURSTS, "bursts", 0.33), (load.NO_BURSTS, "without bursts", 0.80)):
            ratio = median(load.ratios(by_tester, name))
            found.append(Row(
                f"CPU of the load tester per checked reply, {manner}, against {server}",
                f"<= {limit:.2f} of {load.AQUATIC}", f"{ratio:.2f} ({median(by_tester[name].us):.2f} us)",
                ratio <= limit, f"{load.AQUATIC} {median(by_tester[load.AQUATIC].us):.2f} us"))
    return found


def at_most(what, value, limit, unit, beside="", digits=0):
    """A value under a limit."""
    return Row(what, f"<= {limit:,} {unit}".rstrip(), f"{value:,.{digits}f} {unit}".rstrip(),
               value <= limit, beside)


def instruction_rows(counts):
    """Instructions in user space."""
    return [
        at_most("instructions of a connect", counts["connect"], 350, ""),
        at_most("instructions of an announce with 30 peers", counts["announce"], 1100, "",
                f"over the lanes {counts['split-announce']:,}, IPv6 {counts['announce-v6']:,}"),
        at_most("instructions of a scrape of ten", counts["scrape"], 1500, "",
                f"a scrape of one {counts['scrape-one']:,}"),
    ]


def time_rows(time):
    """Announces."""
    announces = time["announce_ns"]
    return [
        at_most("`Shard::serve` of an announce, 1 M swarms, about 2 M peers (Pareto), cold",
                announces["1 M swarms, Pareto"], 150, "ns",
                f"swarms of two {announces['1 M swarms of 2']:.0f} ns; aquatic's load tester's population, "
                f"replies of many peers {announces['1 M swarms, classic']:.0f} ns"),
    ]


def memory_rows(memory):
    """Bytes of shards, and of whole processes beside aquatic_udp's."""
    shard = memory["shard"]
    grown = {(row["tracker"], row["of"]): row["bytes_per_peer"] for row in memory["process"]}

    def beside(of):
        return (f"whole process, swarms of {of:,}: {grown['onrush', of]:.1f} B per peer, aquatic_udp "
                f"{grown['aquatic_udp', of]:.1f}")

    ones = [numbers["per_swarm"] for name, numbers in shard.items() if name.endswith("swarms of one peer")]
    large = [numbers["per_peer"] for name, numbers in shard.items() if name.startswith("200 swarms")]
    pareto = next(numbers for name, numbers in shard.items() if "Pareto" in name)
    back = max(numbers["later"] / (numbers["idle"] + numbers["tables"]) for numbers in shard.values())
    rows = [
        at_most("memory per peer, 1 M swarms, about 2 M peers (Pareto)", pareto["per_peer"], 40, "B",
                beside(2), 1),
        at_most("memory per peer in swarms of 30,000, 50,000 and 70,000 (the most)", max(large), 12, "B",
                beside(50_000), 1),
        at_most("memory per swarm of one peer, 8 M to 12 M of them (the most)", max(ones), 64, "B",
                f"the least {min(ones):.1f} B; {beside(1)}", 1),
    ]
    rows.append(Row("memory returned after all peers have expired", "<= 1.25 of idle and tables",
                    f"{back:.2f} at most", back <= 1.25,
                    "`cargo run --release -p onrush-lab --bin memory`"))
    return rows

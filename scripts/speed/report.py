"""Results as Markdown, as JSON and as a chart."""

import gzip
import json

import chart
import load
import targets


def text(machine, options, results):
    """The report."""
    parts = [
        f"# Speed and size, {machine['date']}\n",
        f"{machine['cpu']}, {machine['vcpus']} vCPUs, Linux {machine['kernel']}, {machine['rustc']}; "
        f"onrush {machine['commit']}, aquatic_udp {machine['aquatic_udp']} (default configuration, one "
        "socket worker).\n",
        f"Repeat with: `{' '.join(['scripts/bench-speed', *(f'--only {part}' for part in options.only or [])])}`\n",
        "## Targets\n",
        target_table(targets.rows(results)),
    ]
    if "cpu" in results:
        parts += [
            "## CPU per reply\n",
            f"Tracker on one vCPU, load on the other, {options.rounds} interleaved rounds of {options.seconds} s, a "
            "fresh process each time. CPU is user and system time of the tracker's process. Only replies "
            "that were checked and found right count, except for the floor (whose replies are not meant to be right) and for "
            "aquatic's load tester (which checks nothing).\n",
            "![CPU per reply](cpu.svg)\n",
            *(scene_table(name, about, results["cpu"][name])
              for name, about in results["scenes"].items()),
        ]
    if "load" in results:
        parts.append(load.tables(results["load"]))
    return "\n".join(parts)


def write(directory, markdown, raw, results):
    """Writes all results to a directory."""
    (directory / "report.md").write_text(markdown)
    (directory / "data.json.gz").write_bytes(gzip.compress(lines(raw).encode(), mtime=0))
    if "cpu" in results:
        (directory / "cpu.svg").write_text(chart.bars(
            "CPU time per reply, microseconds (less is better)",
            {scene: {name: of.median() for name, of in by_name.items()}
             for scene, by_name in results["cpu"].items()}))


def lines(raw):
    """JSON with a line for each measurement."""
    parts = []
    for name, value in raw.items():
        if isinstance(value, list):
            value = "[\n" + ",\n".join(json.dumps(item) for item in value) + "\n]"
        else:
            value = json.dumps(value)
        parts.append(f"{json.dumps(name)}: {value}")
    return "{\n" + ",\n".join(parts) + "\n}\n"


def target_table(rows):
    """Targets and measured values."""
    lines = ["| what | target | measured | | for comparison |", "|---|---|---|---|---|"]
    for row in rows:
        verdict = {True: "met", False: "**not met**", None: ""}[row.met]
        lines.append(f"| {row.what} | {row.target} | {row.measured} | {verdict} | {row.beside} |")
    return "\n".join(lines) + "\n"


def scene_table(name, about, by_name):
    """The table of one load, by tracker."""
    base_name = "aquatic_udp" if "aquatic_udp" in by_name else "floor"
    base = by_name[base_name].median()
    lines = [f"### {name}\n", f"{about[0].upper()}{about[1:]}.\n",
             f"| tracker | us per reply: median (least to most) | of {base_name} | tracker's vCPU, % "
             "| replies/s | wrong | lost, % |",
             "|---|---|---|---|---|---|---|"]
    for tracker, of in by_name.items():
        wrong = "" if tracker == "floor" else of.wrong
        loss = f"{of.median('loss'):.2f}" if of.loss else ""
        lines.append(
            f"| {tracker} | {of.median():.2f} ({min(of.us):.2f} to {max(of.us):.2f}) "
            f"| {of.median() / base:.2f} | {of.median('percent'):.0f} "
            f"| {of.median('rate') / 1e3:.0f} k | {wrong} | {loss} |")
    return "\n".join(lines) + "\n"

#!/usr/bin/env python3
"""Checks of the alerts and the dashboard, for scripts/observe-test.

observed.py alerts              every alert fires in config/prometheus-alerts-test.yml, and has a description
observed.py rules               the dashboard's expressions as a rule file, for promtool
observed.py dashboard           Grafana can import the dashboard
observed.py metrics FILE...     every metric that alerts or dashboard name is in one of these pages of /metrics
"""

import json
import pathlib
import re
import sys

ALERTS = "config/prometheus-alerts.yml"
TESTS = "config/prometheus-alerts-test.yml"
DASHBOARD = "config/grafana-onrush.json"
# Values for Grafana's variables that promtool parses.
VARIABLES = {"$__rate_interval": "1m", "$instance": ".*", "$__interval": "1m", "$__range": "1h"}


def load_dashboard():
    return json.loads(pathlib.Path(DASHBOARD).read_text())


def expressions():
    """(panel, expression) of all panels and annotations, without variables."""
    dashboard = load_dashboard()
    found = [(panel["title"], target["expr"]) for panel in dashboard["panels"] for target in panel.get("targets", [])]
    found += [(note["name"], note["expr"]) for note in dashboard["annotations"]["list"] if "expr" in note]
    for name, text in found:
        for variable, value in VARIABLES.items():
            text = text.replace(variable, value)
        if "$" in text:
            sys.exit(f"{DASHBOARD}: {name}: unknown variable in {text}")
        yield name, text


def alerts():
    """(name, text) of the alerts: a block that begins with `- alert:`, without a YAML library."""
    blocks = pathlib.Path(ALERTS).read_text().split("- alert: ")[1:]
    return [(block.split("\n", 1)[0], block) for block in blocks]


def names(text):
    return set(re.findall(r"\b(?:onrush|process)_[a-z0-9_]+\b|\bup\b", text))


def check_alerts():
    tests = pathlib.Path(TESTS).read_text()
    wrong = [name for name, _ in alerts() if f'ALERTS{{alertname="{name}", alertstate="firing"' not in tests]
    if wrong:
        sys.exit(f"{TESTS}: no test in which these alerts fire: {', '.join(wrong)}")
    for name, text in alerts():
        for part in ("expr:", "for:", "severity: ", "summary: ", "description: "):
            if part not in text:
                sys.exit(f"{ALERTS}: {name} has no {part.strip(': ')}")
    print(f"{len(alerts())} alerts")


def write_rules():
    rules = [{"record": f"panel:{number}", "expr": text} for number, (_, text) in enumerate(expressions())]
    # JSON is YAML.
    print(json.dumps({"groups": [{"name": "dashboard", "rules": rules}]}, indent=1))


def check_dashboard():
    dashboard = load_dashboard()
    variables = {variable["name"]: variable["type"] for variable in dashboard["templating"]["list"]}
    assert variables == {"datasource": "datasource", "instance": "query"}, variables
    assert dashboard["id"] is None and dashboard["uid"] and dashboard["title"], "id, uid and title"
    seen, cells = set(), set()
    for panel in dashboard["panels"]:
        assert panel["id"] not in seen, f"two panels have the id {panel['id']}"
        seen.add(panel["id"])
        at = panel["gridPos"]
        assert at["x"] + at["w"] <= 24, f"{panel['title']} is wider than the grid"
        for cell in ((x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])):
            assert cell not in cells, f"{panel['title']} overlaps another panel"
            cells.add(cell)
        if panel["type"] != "row":
            assert panel["description"] and panel["targets"], panel["title"]
            assert panel["datasource"]["uid"] == "${datasource}", f"{panel['title']} has another data source than ${{datasource}}"
    print(f"{len(seen)} panels")


def check_metrics(files):
    shown = {"up"}
    for path in files:
        lines = pathlib.Path(path).read_text().splitlines()
        shown |= {re.split("[{ ]", line, maxsplit=1)[0] for line in lines if not line.startswith("#")}
    wanted = {name: f"{DASHBOARD}: {panel}" for panel, text in expressions() for name in names(text)}
    wanted |= {name: f"{ALERTS}: {alert}" for alert, text in alerts() for name in names(text)}
    # Those of the XDP program need root, and a tracker that has it attached (scripts/xdp-test).
    missing = sorted(name for name in wanted if name not in shown and not name.startswith("onrush_xdp_"))
    if missing or not shown - {"up"}:
        sys.exit("\n".join(f"{wanted[name]} names {name}, which no tracker exports" for name in missing) or "no metrics")
    print(f"{len(wanted)} metrics are used; these are exported and not used:")
    print(" ".join(sorted(shown - set(wanted) - {name for name in shown if name.endswith(("_sum", "_count", "_bucket"))})))


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["alerts"]:
            check_alerts()
        case ["rules"]:
            write_rules()
        case ["dashboard"]:
            check_dashboard()
        case ["metrics", *files]:
            check_metrics(files)
        case _:
            sys.exit(__doc__)

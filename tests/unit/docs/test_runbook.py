"""Alerts, runbook, dashboard and metrics agree, so that an alert leads to a section, and a query to a metric."""

import ast
import json
import re
from itertools import chain

import pytest
import yaml

from tests.support.monitoring.prometheus import DASHBOARD, alerts, expressions
from tests.support.monitoring.runbook import commands, sections, statements
from tests.support.paths import ROOT

FOREIGN = {
    "node_filesystem_avail_bytes",
    "node_filesystem_size_bytes",
    "process_resident_memory_bytes",
    "up",
    "ALERTS",
}
MONITORING = ROOT / "tests/monitoring"
_METRIC = re.compile(r"\b(?:outbox_[a-z_]+|node_[a-z_]+|process_[a-z_]+|up\b|ALERTS\b)")
_SUFFIX = re.compile(r"_(bucket|count|sum)$")
METRICS = (ROOT / "docs/metrics.md").read_text("utf-8")


def test_every_alert_has_its_section_and_every_section_its_alert() -> None:
    assert list(sections()) == [alert["alert"] for alert in alerts()]


@pytest.mark.parametrize("alert", alerts(), ids=lambda alert: str(alert["alert"]))
def test_an_alert_says_how_bad_it_is_what_is_wrong_and_where_to_read_on(
    alert: dict[str, dict[str, str]],
) -> None:
    assert alert["labels"]["severity"] in ("critical", "warning")
    assert alert["annotations"]["summary"]
    assert alert["annotations"]["runbook"] == f"docs/runbook.md#{str(alert['alert']).lower()}"


@pytest.mark.parametrize("alert", sections())
def test_a_section_has_something_to_look_at(alert: str) -> None:
    assert commands(alert)
    for words in commands(alert):
        assert words[0] in ("publisher", "spark-job") or words[:3] == ["python", "-m", "service.probe"], words
    assert all(statement.lstrip().startswith("SELECT") for statement in statements(alert))


def test_rules_and_dashboard_ask_for_metrics_that_are_documented() -> None:
    asked = set(
        chain.from_iterable(
            _METRIC.findall(expression)
            for expression in [
                *(alert["expr"] for alert in alerts()),
                *chain.from_iterable(expressions().values()),
            ]
        )
    )
    documented = set(re.findall(r"`(outbox_[a-z_]+)", METRICS))
    assert {_SUFFIX.sub("", name) for name in asked} - documented - FOREIGN == set()


def test_the_dashboard_and_what_provides_it_name_the_same_source() -> None:
    dashboard = json.loads(DASHBOARD.read_text("utf-8"))
    folder = DASHBOARD.parent.parent / "provisioning"
    (source,) = yaml.safe_load((folder / "datasources/prometheus.yml").read_text("utf-8"))["datasources"]
    (provider,) = yaml.safe_load((folder / "dashboards/outbox.yml").read_text("utf-8"))["providers"]
    compose = yaml.safe_load((ROOT / "docker-compose.yml").read_text("utf-8"))
    mounted = dict(volume.split(":")[:2] for volume in compose["services"]["grafana"]["volumes"])
    assert mounted["./deploy/monitoring/grafana/dashboards"] == provider["options"]["path"]
    assert dashboard["uid"] == "spark-outbox"
    panels = [panel for panel in dashboard["panels"] if panel["type"] != "row"]
    assert {panel["datasource"]["uid"] for panel in panels} == {source["uid"]}
    assert len({panel["id"] for panel in dashboard["panels"]}) == len(dashboard["panels"])
    assert len({panel["title"] for panel in panels}) == len(panels)
    for panel in panels:
        assert panel["description"], panel["title"]


def test_what_prometheus_scrapes_is_what_compose_runs() -> None:
    config = yaml.safe_load((ROOT / "deploy/monitoring/prometheus.yml").read_text("utf-8"))
    compose = yaml.safe_load((ROOT / "docker-compose.yml").read_text("utf-8"))
    port = int(compose["x-settings"]["OUTBOX_METRICS__PORT"])
    for job in config["scrape_configs"]:
        (found,) = job["dns_sd_configs"]
        assert found["names"] == [job["job_name"]]
        assert job["job_name"] in compose["services"]
        assert found["port"] == port
    for name in ("prometheus", "grafana"):
        assert compose["services"][name]["profiles"] == ["watch"]
        assert all(each.startswith("127.0.0.1:") for each in compose["services"][name]["ports"])


def test_every_alert_is_made_to_fire_by_a_test() -> None:
    cases = yaml.safe_load((MONITORING / "rules.test.yml").read_text("utf-8"))["tests"]
    by_numbers = {rule["alertname"] for case in cases for rule in case["alert_rule_test"]}
    assert by_numbers | by_faults() == {alert["alert"] for alert in alerts()}


def test_the_page_names_the_alerts_that_no_fault_made_fire() -> None:
    text = (ROOT / "docs/monitoring.md").read_text("utf-8")
    [named] = re.findall(r"Only with made-up numbers: (.*)\.$", text, re.MULTILINE)
    assert set(re.findall(r"`(\w+)`", named)) == {alert["alert"] for alert in alerts()} - by_faults()


def by_faults() -> set[str]:
    """Alerts that a test waits for under their fault."""
    found = set()
    for path in MONITORING.glob("test_*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Call) and ast.unparse(node.func) in ("alert", "away", "alerting"):
                found |= {str(each.value) for each in node.args if isinstance(each, ast.Constant)}
    return {each for each in found if each.startswith("Outbox")}

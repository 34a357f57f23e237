"""A real Prometheus with the shipped rules, their minutes made seconds."""

import json
import os
import re
import shutil
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

import yaml

from devstack.processes.process import ServerProcess, launch
from tests.support.paths import ROOT
from tests.support.scraping import free_port
from tests.support.waiting import wait_until

RULES = ROOT / "deploy/monitoring/outbox.rules.yml"
DASHBOARD = ROOT / "deploy/monitoring/grafana/dashboards/spark-outbox.json"
_MINUTES = re.compile(r"\[(\d+)m\]")
_SECONDS_FOR_A_MINUTE = 2
_THRESHOLDS = {
    "OutboxLags": ("> 300", "> 10"),
    "OutboxLate": ("> 30", "> 1"),
    "OutboxInputLags": ("> 1e6", "> 1e3"),
    "OutboxLaneFails": ("> 10", "> 3"),
    "OutboxRebuilds": ("> 50", "> 5"),
}
"""Of seconds, at the same scale; of offsets, which depends on the traffic; of failures and batches, of which there are fewer in seconds."""


def program(name: str) -> str:
    """The path of `prometheus`, which $PROMETHEUS names too, or of `promtool` beside it. That there is none is an error, never a skip."""
    given = os.environ.get("PROMETHEUS")
    found = str(Path(given).with_name(name)) if given else shutil.which(name)
    assert found, f"there is no {name}: apt-get install prometheus, or set PROMETHEUS=/path/to/prometheus"
    return found


def alerts() -> list[dict[str, Any]]:
    """The rules as shipped."""
    groups = yaml.safe_load(RULES.read_text("utf-8"))["groups"]
    return [rule for group in groups for rule in group["rules"]]


def expressions() -> dict[str, list[str]]:
    """{title of a panel of the dashboard: its queries}"""
    panels = json.loads(DASHBOARD.read_text("utf-8"))["panels"]
    return {
        panel["title"]: [target["expr"] for target in panel["targets"]]
        for panel in panels
        if panel["type"] != "row"
    }


def quick_rules() -> str:
    """The shipped rules, but that a minute is two seconds, a few things are many, and nothing has to last longer than a second."""
    rules = alerts()
    for rule in rules:
        rule["expr"] = _MINUTES.sub(lambda found: f"[{int(found[1]) * _SECONDS_FOR_A_MINUTE}s]", rule["expr"])
        if rule["alert"] in _THRESHOLDS:
            shipped, scaled = _THRESHOLDS[rule["alert"]]
            assert shipped in rule["expr"], rule["alert"]
            rule["expr"] = rule["expr"].replace(shipped, scaled)
        if "for" in rule:
            rule["for"] = "1s"
    written: str = yaml.safe_dump({"groups": [{"name": "quick", "interval": "500ms", "rules": rules}]})
    return written


class Prometheus:
    """One that looks twice a second. Use `with`."""

    def __init__(self, folder: Path, targets: Mapping[str, list[int]]) -> None:
        """`targets`: {job: ports}."""
        self._folder = folder
        self._port = free_port()
        self._process: ServerProcess | None = None
        (folder / "rules.yml").write_text(quick_rules())
        jobs = [
            {
                "job_name": job,
                "static_configs": [{"targets": [f"127.0.0.1:{port}" for port in ports]}],
            }
            for job, ports in targets.items()
        ]
        times = {"scrape_interval": "500ms", "scrape_timeout": "500ms", "evaluation_interval": "500ms"}
        config = {"global": times, "rule_files": ["rules.yml"], "scrape_configs": jobs}
        (folder / "prometheus.yml").write_text(yaml.safe_dump(config))

    def __enter__(self) -> Self:
        self._process = launch(
            "prometheus",
            [
                program("prometheus"),
                f"--config.file={self._folder / 'prometheus.yml'}",
                f"--storage.tsdb.path={self._folder / 'data'}",
                f"--web.listen-address=127.0.0.1:{self._port}",
            ],
            log=self._folder / "prometheus.log",
        )
        wait_until(self._is_ready, lambda: (self._folder / "prometheus.log").read_text("utf-8"))
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process is not None
        self._process.kill()

    def firing(self) -> set[tuple[str, frozenset[str]]]:
        """(alert, values of its labels) of all that fire now."""
        return {
            (found["labels"]["alertname"], frozenset(found["labels"].values()))
            for found in self._asked("alerts")["alerts"]
            if found["state"] == "firing"
        }

    def fires(self, alert: str, *labels: str) -> bool:
        """Whether it fires, with these values among its labels."""
        return any(name == alert and values >= set(labels) for name, values in self.firing())

    def query(self, expression: str) -> list[dict[str, Any]]:
        """Return the series of an expression. Raises AssertionError with Prometheus' own words where it does not parse."""
        found: list[dict[str, Any]] = self._asked("query", query=expression)["result"]
        return found

    def _asked(self, what: str, **values: str) -> Any:
        address = f"http://127.0.0.1:{self._port}/api/v1/{what}?{urllib.parse.urlencode(values)}"
        try:
            with urllib.request.urlopen(address, timeout=30) as answer:
                return json.load(answer)["data"]
        except urllib.error.HTTPError as error:
            raise AssertionError(f"{values}: {error.read().decode()}") from error

    def _is_ready(self) -> bool:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self._port}/-/ready", timeout=30) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False

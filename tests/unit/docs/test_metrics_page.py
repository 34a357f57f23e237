"""docs/metrics.md names every metric with its labels, and none that is not there."""

import re
from itertools import chain

import pytest
from prometheus_client.registry import Collector

import publisher.monitoring.latency
import publisher.monitoring.metrics
import publisher.status.endpoint
import publisher.status.outbox_metrics
import spark_job.monitoring.metrics
import spark_job.status.endpoint
import spark_job.status.outbox_metrics
from publisher.monitoring.health import ProcessHealth
from service.settings import Settings
from spark_job.monitoring.health import JobHealth
from tests.support.monitoring.prometheus import alerts
from tests.support.paths import ROOT

PAGE = (ROOT / "docs" / "metrics.md").read_text("utf-8")
SUFFIXES = re.compile(r"_(total|bucket|count|sum)$")
SETTINGS = Settings.model_construct()
SERVICES: dict[str, list[Collector]] = {
    "publisher": [
        publisher.monitoring.metrics.REGISTRY,
        publisher.status.outbox_metrics.PublisherOutboxMetrics(1),
        publisher.status.endpoint.process_metrics(SETTINGS, ProcessHealth()),
    ],
    "job": [
        spark_job.monitoring.metrics.REGISTRY,
        spark_job.status.outbox_metrics.JobOutboxMetrics(1, lambda _ends: []),
        spark_job.status.endpoint.process_metrics(SETTINGS, JobHealth()),
    ],
}


def served(service: str) -> set[str]:
    """The names of a service's own metrics, without suffixes; each once."""
    collectors = SERVICES[service]
    families = [
        family
        for collector in collectors
        for family in (collector.describe() if hasattr(collector, "describe") else collector.collect())
    ]
    names = [family.name for family in families if family.name.startswith("outbox_")]
    assert len(names) == len(set(names))
    return set(names)


def section(*titles: str) -> str:
    """The text below these headings."""
    return "\n".join(part for part in PAGE.split("\n## ") if part.split("\n")[0] in titles)


def named(text: str) -> set[str]:
    return {SUFFIXES.sub("", name) for name in re.findall(r"\boutbox_[a-z_]+", text)}


@pytest.mark.parametrize("service", SERVICES)
def test_the_tables_name_what_the_service_serves(service: str) -> None:
    assert named(section("Metrics of both", f"Metrics of the {service}")) == served(service)


def test_the_alerts_are_about_metrics_that_are_served() -> None:
    asked = named("\n".join(str(alert["expr"]) for alert in alerts()))
    assert asked
    assert asked <= served("publisher") | served("job")


def test_labels_and_their_values_are_as_served() -> None:
    """Of those metrics whose values are known before anything happened."""
    documented = dict(re.findall(r"`(outbox_[a-z_]+)\{([a-z,]+)\}`", PAGE))
    families = chain.from_iterable(
        collector.collect() for collectors in SERVICES.values() for collector in collectors
    )
    found = {
        (sample.name, ",".join(label for label in sample.labels if label != "le"))
        for family in families
        for sample in family.samples
        if sample.labels and sample.name.startswith("outbox_") and not sample.name.endswith("_created")
    }
    assert found
    for name, labels in found:
        assert (documented.get(name) or documented.get(SUFFIXES.sub("", name), "")) == labels, name
    for (name, _), value in {
        ((sample.name, label), value)
        for collectors in SERVICES.values()
        for family in collectors[0].collect()
        for sample in family.samples
        for label, value in sample.labels.items()
        if label in ("outcome", "kind", "content")
    }:
        assert f"`{value}`" in PAGE, (name, value)

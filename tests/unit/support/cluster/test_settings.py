"""The parts of the tests' node that name each other's addresses and settings agree."""

import re
from pathlib import Path
from typing import Any

import yaml

from examples.clickstream.topics import CONFIG
from service.settings import load_settings
from tests.support.cluster import pipeline
from tests.support.paths import ROOT

SUPPORT = ROOT / "tests/support/cluster"


def manifest(name: str) -> list[Any]:
    return list(yaml.safe_load_all((SUPPORT / "manifests" / name).read_text("utf-8")))


def addresses(objects: list[Any]) -> dict[str, str]:
    """{name of a Service: its address}"""
    return {
        f"{each['metadata']['name']}.{each['metadata']['namespace']}": each["spec"]["clusterIP"]
        for each in objects
        if each["kind"] == "Service"
    }


def test_names_lead_to_the_services() -> None:
    dns, services = manifest("dns.yaml"), addresses(manifest("servers.yaml"))
    [zone] = [each["data"]["zone"] for each in dns if each["kind"] == "ConfigMap"]
    named = dict(re.findall(r"^(\S+)\.svc\.cluster\.local\. +5 IN A (\S+)$", zone, re.MULTILINE))
    assert named == services | {"kubernetes.default": "10.96.0.1"}
    assert f"{services['kafka.servers']}:9094" == pipeline.BOOTSTRAP
    assert f"TESTS://{pipeline.BOOTSTRAP}" in (SUPPORT / "manifests/servers.yaml").read_text("utf-8")


def test_pods_ask_the_dns_that_there_is() -> None:
    kubelet = yaml.safe_load((SUPPORT / "settings/kubelet.yaml").read_text("utf-8"))
    assert kubelet["clusterDNS"] == [addresses(manifest("dns.yaml"))["kube-dns.kube-system"]]


def test_the_pods_assemble_sessions_as_the_example_does() -> None:
    """Its settings tell the tests what must come out."""
    pods, example = (load_settings(Path(path)) for path in (pipeline.OVERLAY / "outbox.toml", CONFIG))
    assert (pods.session, pods.source, pods.transform) == (example.session, example.source, example.transform)

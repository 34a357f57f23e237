"""deploy/kubernetes/operators: what it names exists in the manifests, the metrics, the settings and the lists of rights."""

import re
from collections import Counter
from itertools import chain
from typing import Any

import pytest
import yaml

from service.settings import PublisherSettings, SourceSettings
from tests.support.deploy.manifests import BASE, EXAMPLE, objects
from tests.support.monitoring.prometheus import RULES, alerts
from tests.support.paths import ROOT
from tests.support.secured.rights import JOB, PUBLISHER, Rights

FOLDER = ROOT / "deploy" / "kubernetes" / "operators"
OBJECTS = {
    (each["kind"], each["metadata"]["name"]): each
    for path in FOLDER.iterdir()
    for each in yaml.safe_load_all(path.read_text("utf-8"))
}
DEPLOYMENTS = {each["metadata"]["name"]: each for each in objects(BASE) if each["kind"] == "Deployment"}
POLICIES = {
    each["metadata"]["name"]: each["spec"] for each in objects(BASE) if each["kind"] == "NetworkPolicy"
}
LOGINS = (ROOT / "deploy/postgres/logins.sh").read_text("utf-8")


def test_it_has_an_object_for_each_operator() -> None:
    assert Counter(kind for kind, _ in OBJECTS) == {
        "KafkaTopic": 2,
        "KafkaUser": 2,
        "Cluster": 1,
        "PodMonitor": 1,
        "PrometheusRule": 1,
        "ScaledObject": 1,
    }


# Strimzi


def input_topic() -> str:
    settings = (EXAMPLE / "outbox.toml").read_text("utf-8")
    (name,) = re.findall(r'^topics = \["(.*)"\]$', settings, re.MULTILINE)
    return str(name)


def acl(rights: Rights, **names: str) -> dict[str, Any]:
    """As Strimzi writes it."""
    kind = "transactionalId" if rights.kind == "transactional_id" else rights.kind
    pattern = "prefix" if rights.prefix else "literal"
    resource = {"type": kind, "name": rights.name.format_map(names), "patternType": pattern}
    return {"resource": resource, "operations": list(rights.operations)}


@pytest.mark.parametrize(
    ("user", "rights"), [("outbox-spark-job", JOB), ("outbox-publisher", PUBLISHER)], ids=["job", "publisher"]
)
def test_a_user_of_kafka_has_the_rights_of_its_list_and_no_others(
    user: str, rights: tuple[Rights, ...]
) -> None:
    names = {"input": input_topic(), "output": "shop.sessions", "group": SourceSettings().consumer_group}
    granted = OBJECTS["KafkaUser", user]["spec"]["authorization"]
    assert granted == {"type": "simple", "acls": [acl(each, **names) for each in rights]}


def test_the_topics_are_as_the_page_on_kafka_asks() -> None:
    topics = {name: each["spec"] for (kind, name), each in OBJECTS.items() if kind == "KafkaTopic"}
    assert topics.keys() == {input_topic(), "shop.sessions"}
    for topic in topics.values():
        assert topic["replicas"] == 3
        assert topic["config"]["min.insync.replicas"] == 2
        assert topic["config"]["unclean.leader.election.enable"] is False
    assert topics[input_topic()]["config"]["cleanup.policy"] == "delete"


def test_what_belongs_to_kafka_names_its_cluster() -> None:
    found = {
        (each["metadata"]["namespace"], each["metadata"]["labels"]["strimzi.io/cluster"])
        for (kind, _), each in OBJECTS.items()
        if kind.startswith("Kafka")
    }
    assert found == {("kafka", "kafka")}


# CloudNativePG


def test_postgres_gets_the_roles_and_grants_that_compose_gives_it() -> None:
    statements = OBJECTS["Cluster", "outbox"]["spec"]["bootstrap"]["initdb"]["postInitApplicationSQL"]
    made = [each for each in statements if each.startswith("CREATE ROLE")]
    (names,) = re.findall(r"ARRAY\[(.*?)\]", LOGINS, re.DOTALL)
    roles = [
        name
        for name in re.findall(r"'(\w+)'", names)
        if name.startswith("outbox_") and name != "outbox_owner"
    ]
    assert made == [f"CREATE ROLE {name} NOLOGIN" for name in roles]
    others = [each for each in statements if each not in made]
    assert len(others) == 3
    assert [each for each in others if f"{each};\n" not in LOGINS] == []


def test_each_login_of_postgres_has_the_role_that_compose_gives_it() -> None:
    cluster = OBJECTS["Cluster", "outbox"]["spec"]
    managed = {each["name"]: each for each in cluster["managed"]["roles"]}
    assert managed.keys() == {"spark_job", "publisher"}
    for name, each in managed.items():
        (role,) = each["inRoles"]
        assert f"GRANT {role} TO {name};\n" in LOGINS
        assert each["login"] is True
    assert cluster["bootstrap"]["initdb"]["owner"] == "outbox_owner"


def test_a_commit_waits_for_a_replica() -> None:
    """The row of docs/postgres.md whose promise is exact after a failover."""
    cluster = OBJECTS["Cluster", "outbox"]["spec"]
    assert cluster["postgresql"]["synchronous"] == {
        "method": "any",
        "number": 1,
        "dataDurability": "required",
    }
    assert cluster["instances"] == 3


# Prometheus


def test_the_rule_has_the_alerts_as_shipped() -> None:
    """`make docs` copies them."""
    rules = OBJECTS["PrometheusRule", "spark-outbox"]["spec"]
    assert rules == yaml.safe_load(RULES.read_text("utf-8"))


def test_the_monitor_scrapes_the_pods_that_the_network_lets_it_scrape() -> None:
    monitor = OBJECTS["PodMonitor", "spark-outbox"]["spec"]
    policy = POLICIES["outbox-metrics"]
    assert monitor["selector"] == policy["podSelector"]
    (endpoint,) = monitor["podMetricsEndpoints"]
    assert [endpoint["port"]] == [port["port"] for rule in policy["ingress"] for port in rule["ports"]]
    for deployment in DEPLOYMENTS.values():
        (container,) = deployment["spec"]["template"]["spec"]["containers"]
        assert endpoint["port"] in {port["name"] for port in container["ports"]}


def test_the_alerts_know_the_scrape_jobs_by_the_label_that_names_them() -> None:
    label = OBJECTS["PodMonitor", "spark-outbox"]["spec"]["jobLabel"]
    named = {each["spec"]["template"]["metadata"]["labels"][label] for each in DEPLOYMENTS.values()}
    asked = set(chain.from_iterable(re.findall(r'job="([^"]+)"', alert["expr"]) for alert in alerts()))
    assert asked - {"postgres-host"} == named


# KEDA


def test_publishers_are_scaled_by_a_metric_that_there_is_up_to_the_number_of_lanes() -> None:
    scaled = OBJECTS["ScaledObject", "publisher"]["spec"]
    target = DEPLOYMENTS[scaled["scaleTargetRef"]["name"]]
    assert scaled["scaleTargetRef"]["kind"] == target["kind"]
    assert scaled["minReplicaCount"] == scaled["fallback"]["replicas"] == target["spec"]["replicas"]
    assert scaled["maxReplicaCount"] == PublisherSettings().lanes
    (trigger,) = scaled["triggers"]
    (metric,) = re.findall(r"\boutbox_\w+", trigger["metadata"]["query"])
    assert f"`{metric}{{epoch,lane}}`" in (ROOT / "docs" / "metrics.md").read_text("utf-8")
    assert all(isinstance(value, str) for value in trigger["metadata"].values())

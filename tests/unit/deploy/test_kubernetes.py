"""deploy/kubernetes/: the official schemas accept it, and it agrees with the images, the settings, the endpoint and the documents.

Read file by file, which needs no program. With KUSTOMIZE in the environment (`make check-manifests`) it is what that command builds.
"""

import copy
import os
import re
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from service.lifecycle.shutdown import LONGEST_END_S
from service.observability import endpoint
from service.observability.verdict import HealthVerdict
from service.settings import PublisherSettings, Settings, load_settings
from tests.support.deploy.manifests import BASE, EXAMPLE, kustomization, objects
from tests.support.paths import ROOT
from tests.support.processes.publishers import EIGHT_LANES_BYTES

VERSIONS = ("1.31", "1.37")
"""The oldest that has all we use, and the newest whose schemas the validator carries."""
DOCKERFILES = {"publisher": "publisher/Dockerfile", "spark-job": "spark_job/Dockerfile"}
PYTHON_AND_ARROW = 2 << 30


EVERYTHING = objects(EXAMPLE)
PODS = {
    found["metadata"]["name"]: found["spec"]["template"]
    for found in EVERYTHING
    if found["kind"] in ("Deployment", "Job")
}
SERVICES = {name: pod for name, pod in PODS.items() if name in DOCKERFILES}


def of_kind(kind: str) -> list[Any]:
    return [found for found in EVERYTHING if found["kind"] == kind]


def container(pod: Any) -> Any:
    (only,) = pod["spec"]["containers"]
    return only


def variables(pod: Any) -> dict[str, str]:
    return {each["name"]: each["value"] for each in container(pod)["env"]}


def mounts(pod: Any) -> dict[str, Any]:
    """{path in the container: volume}"""
    volumes = {volume["name"]: volume for volume in pod["spec"]["volumes"]}
    return {mount["mountPath"]: volumes[mount["name"]] for mount in container(pod)["volumeMounts"]}


def recipe(pod: Any) -> str:
    """The Dockerfile of the pod's image."""
    image = container(pod)["image"].rsplit("/", 1)[-1].split(":")[0]
    return (ROOT / DOCKERFILES[image]).read_text("utf-8")


def selects(selector: Any, pod: Any) -> bool:
    labels = pod["metadata"]["labels"]
    return all(labels.get(name) == value for name, value in selector.get("matchLabels", {}).items()) and all(
        labels.get(each["key"]) in each["values"] for each in selector.get("matchExpressions", [])
    )


def selected(selector: Any) -> set[str]:
    return {name for name, pod in PODS.items() if selects(selector, pod)}


def quantity(text: str) -> int:
    """Bytes of `512Mi` and `4Gi`, and of a heap as Spark writes it: `512m`, `2g`."""
    number = text.rstrip("MGmgi")
    return int(number) << {"m": 20, "g": 30}[text[len(number)].lower()]


@pytest.fixture
def settings_of(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """A pod's settings, as its own process reads them; the files of its Secret are made here."""

    def load(pod: Any) -> Settings:
        for name in [name for name in os.environ if name.startswith("OUTBOX_")]:
            monkeypatch.delenv(name)
        for name, value in variables(pod).items():
            path = Path(value)
            if name == "OUTBOX_CONFIG":
                assert mounts(pod)[str(path.parent)]["configMap"]["name"].startswith("outbox")
                monkeypatch.setenv(name, str(EXAMPLE / path.name))
            elif name.endswith("_FILE"):
                assert "secret" in mounts(pod)[str(path.parent)]
                (tmp_path / path.name).write_text("dbname=outbox" if path.name == "dsn" else "")
                monkeypatch.setenv(name, str(tmp_path / path.name))
            else:
                monkeypatch.setenv(name, value)
        return load_settings()

    return load


# The schemas


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("folder", [BASE, EXAMPLE], ids=lambda folder: folder.name)
def test_the_schemas_accept_every_object(folder: Path, version: str) -> None:
    found = objects(folder)
    assert len(found) >= 8
    for each in found:
        kubernetes_validate.validate(each, version, strict=True)


def test_a_misspelt_field_is_refused() -> None:
    (deployment, *_) = of_kind("Deployment")
    wrong = copy.deepcopy(deployment)
    container(wrong["spec"]["template"])["readynessProbe"] = {}
    with pytest.raises(kubernetes_validate.ValidationError, match="readynessProbe"):
        kubernetes_validate.validate(wrong, VERSIONS[-1], strict=True)


@pytest.mark.parametrize("folder", [BASE, EXAMPLE], ids=lambda folder: folder.name)
def test_every_file_is_part_of_its_kustomization(folder: Path) -> None:
    named = kustomization(folder)
    files = {
        *named["resources"],
        *(file for made in named.get("configMapGenerator", []) for file in made["files"]),
    }
    assert {path.name for path in folder.iterdir()} == {name for name in files if "/" not in name} | {
        "kustomization.yaml"
    }


# The pods


@pytest.mark.parametrize("name", PODS)
def test_a_pod_is_confined(name: str) -> None:
    """The namespace's policy `restricted` asks for most of it; the read-only file system and the missing token go further."""
    pod = PODS[name]["spec"]
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert pod["automountServiceAccountToken"] is False
    assert container(PODS[name])["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }


@pytest.mark.parametrize("name", PODS)
def test_a_pod_runs_as_the_user_of_its_image(name: str) -> None:
    context = PODS[name]["spec"]["securityContext"]
    [(user, group)] = re.findall(r"^USER (\d+):(\d+)$", recipe(PODS[name]), re.MULTILINE)
    assert (context["runAsUser"], context["runAsGroup"], context["fsGroup"]) == (
        int(user),
        int(group),
        int(group),
    )


@pytest.mark.parametrize("name", PODS)
def test_the_program_accepts_the_pods_settings(name: str, settings_of: Any) -> None:
    """An unknown variable, an unknown key of outbox.toml, and a Secret that is not mounted are errors."""
    settings = settings_of(PODS[name])
    assert settings.postgres.database() == "outbox"
    if name in SERVICES:
        [port] = container(PODS[name])["ports"]
        assert (settings.metrics.host, settings.metrics.port_of_job()) == ("0.0.0.0", port["containerPort"])
        assert settings.metrics.port == port["containerPort"]
        assert settings.log.format == "json"


def test_what_the_job_writes_has_a_volume() -> None:
    [cache] = re.findall(r"OUTBOX_JOB__CACHE=(\S+)", recipe(PODS["spark-job"]))
    writable = {path for path, volume in mounts(PODS["spark-job"]).items() if "emptyDir" in volume}
    assert writable == {"/tmp", str(Path(cache).parent)}


@pytest.mark.parametrize("name", SERVICES)
def test_the_probes_ask_pages_that_there_are(name: str) -> None:
    only = container(SERVICES[name])
    pages = endpoint.pages([], lambda: HealthVerdict([]), lambda: HealthVerdict([]))
    asked = {probe: only[f"{probe}Probe"]["httpGet"] for probe in ("startup", "liveness", "readiness")}
    assert {probe: get["path"] for probe, get in asked.items()} == {
        "startup": "/healthz",
        "liveness": "/healthz",
        "readiness": "/readyz",
    }
    assert {get["path"] for get in asked.values()} <= pages.keys()
    assert {get["port"] for get in asked.values()} == {port["name"] for port in only["ports"]}


def test_a_pod_is_given_the_time_that_its_end_may_take() -> None:
    compose = yaml.safe_load((ROOT / "docker-compose.yml").read_text("utf-8"))["services"]
    for name, pod in SERVICES.items():
        seconds = int(compose[name]["stop_grace_period"].removesuffix("s"))
        assert pod["spec"]["terminationGracePeriodSeconds"] >= seconds
    assert PODS["publisher"]["spec"]["terminationGracePeriodSeconds"] > LONGEST_END_S


def test_memory_holds_what_the_settings_allow(settings_of: Any) -> None:
    job, publisher = (container(PODS[name])["resources"] for name in ("spark-job", "publisher"))
    heap = quantity(settings_of(PODS["spark-job"]).job.driver_memory)
    assert quantity(job["limits"]["memory"]) >= heap + PYTHON_AND_ARROW
    lanes = settings_of(PODS["publisher"]).publisher
    defaults = PublisherSettings()
    assert (lanes.lanes, lanes.transaction_bytes) == (8, defaults.transaction_bytes)
    assert quantity(publisher["limits"]["memory"]) == EIGHT_LANES_BYTES
    size = f"{EIGHT_LANES_BYTES >> 30} GiB"
    for name, told in {
        "lanes.md": f"with 8 lanes needs at most {size}",
        "kubernetes.md": f"{size}: for 8 lanes",
    }.items():
        assert told in (ROOT / "docs" / name).read_text("utf-8")
    # Without a limit Spark's local[*] would count the cores of the node.
    assert job["limits"]["cpu"] == job["requests"]["cpu"]


# What they are selected by


def test_two_pods_of_the_job_are_an_owner_and_a_standby() -> None:
    [job] = [found for found in of_kind("Deployment") if found["metadata"]["name"] == "spark-job"]
    assert container(PODS["spark-job"])["args"] == ["run", "--standby"]
    assert job["spec"]["strategy"] == {
        "type": "RollingUpdate",
        "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0},
    }


@pytest.mark.parametrize("kind", ["Deployment", "PodDisruptionBudget"])
def test_each_service_is_selected_by_its_name(kind: str) -> None:
    found = {each["metadata"]["name"]: selected(each["spec"]["selector"]) for each in of_kind(kind)}
    assert found == {name: {name} for name in SERVICES}


def test_traffic_is_denied_but_for_names_metrics_and_the_two_servers(settings_of: Any) -> None:
    policies = {each["metadata"]["name"]: each["spec"] for each in of_kind("NetworkPolicy")}
    denied = policies.pop("outbox-deny")
    assert denied["policyTypes"] == ["Ingress", "Egress"]
    assert not {"ingress", "egress"} & denied.keys()
    assert selected(denied["podSelector"]) == set(PODS)
    bootstrap = settings_of(PODS["publisher"]).kafka.bootstrap_servers.split(",")
    kafka = {int(server.rsplit(":", 1)[1]) for server in bootstrap}
    allowed = {
        name: (
            direction,
            {port["port"] for rule in policy[direction] for port in rule["ports"]},
            selected(policy["podSelector"]),
        )
        for name, policy in policies.items()
        for direction in [policy["policyTypes"][0].lower()]
    }
    assert allowed == {
        "outbox-dns": ("egress", {53}, set(PODS)),
        "outbox-metrics": ("ingress", {"metrics"}, set(SERVICES)),
        "outbox-postgres": ("egress", {5432}, set(PODS)),
        "outbox-kafka": ("egress", kafka, set(SERVICES)),
    }


def test_the_page_says_how_to_make_each_secret() -> None:
    page = (ROOT / "docs" / "kubernetes.md").read_text("utf-8")
    for name, pod in PODS.items():
        [(path, secret)] = [
            (path, volume["secret"]["secretName"])
            for path, volume in mounts(pod).items()
            if "secret" in volume
        ]
        files = {Path(value).name for value in variables(pod).values() if value.startswith(path)}
        [command] = re.findall(rf"kubectl .*create secret generic {secret}\b(.*)", page)
        assert files <= set(re.findall(r"--from-file=([\w.]+)", command)), name
    assert of_kind("Secret") == []

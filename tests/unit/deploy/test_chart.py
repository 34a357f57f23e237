"""deploy/helm: the chart installs what the manifests for kustomize install.

Rendered here, which needs no program. With HELM in the environment (`make check-chart`) it is what that command renders.
"""

import copy
import hashlib
import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import jsonschema
import kubernetes_validate
import pytest
import yaml

from tests.support.deploy.manifests import BASE, EXAMPLE, KUSTOMIZE, kustomization, objects
from tests.support.paths import ROOT

CHART = ROOT / "deploy" / "helm" / "spark-outbox"
HELM = os.environ.get("HELM")
KUBERNETES = "1.37.0"
DEFAULTS: Any = yaml.safe_load((CHART / "values.yaml").read_text("utf-8"))
SCHEMA = json.loads((CHART / "values.schema.json").read_text("utf-8"))


def chart(values: Any, folder: Path) -> list[Any]:
    """The chart's objects with these values over its defaults."""
    if not HELM:
        made = merged(DEFAULTS, values)
        texts = (filled(path.read_text("utf-8"), made) for path in (CHART / "templates").iterdir())
        return [each for text in texts for each in yaml.safe_load_all(text) if each]
    (folder / "values.yaml").write_text(yaml.safe_dump(values))
    options = ["--values", str(folder / "values.yaml"), "--kube-version", KUBERNETES]
    command = [*shlex.split(HELM), "template", "outbox", str(CHART), *options]
    built = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, timeout=600)
    return list(yaml.safe_load_all(built.stdout))


def merged(below: Any, above: Any) -> Any:
    if not isinstance(below, dict) or not isinstance(above, dict):
        return above
    return below | {key: merged(below.get(key), value) for key, value in above.items()}


def filled(template: str, values: Any) -> str:
    """What Helm makes of the three things that the templates use."""

    def value(name: str) -> Any:
        found = values
        for key in name.split("."):
            found = found[key]
        return found

    guard = re.fullmatch(r"\{\{- if \.Values\.(\S+) }}\n(.*)\{\{- end }}\n", template, re.DOTALL)
    if guard:
        template = guard[2] if value(guard[1]) else ""
    text = re.sub(r"{{ toJson \.Values\.(\S+) }}", lambda at: json.dumps(value(at[1])), template)
    text = re.sub(
        r"{{ sha256sum \.Values\.(\S+) }}",
        lambda at: hashlib.sha256(value(at[1]).encode()).hexdigest(),
        text,
    )
    assert "{{" not in text
    return text


def compared(found: list[Any]) -> dict[tuple[str, str], Any]:
    """By kind and name, without what belongs to one of the two programs: hooks, the namespace, how changed settings are a rollout."""
    made = {}
    for each in copy.deepcopy(found):
        if each["kind"] == "Namespace":
            continue
        each["metadata"].pop("namespace", None)
        each["metadata"].pop("annotations", None)
        each.get("spec", {}).get("template", {}).get("metadata", {}).pop("annotations", None)
        # A name of a ConfigMap with the hash of its content, which kustomize adds.
        plain = json.loads(re.sub(r'"outbox-[a-z0-9]{10}"', '"outbox"', json.dumps(each)))
        made[(plain["kind"], plain["metadata"]["name"])] = plain
    assert len(made) >= 8
    return made


def example() -> Any:
    """The values that say what the example's overlay says."""
    named = kustomization(EXAMPLE)
    images = {each["name"]: f"{each['newName']}:{each['newTag']}" for each in named["images"]}
    (job,) = named["replicas"]
    servers = {
        each["metadata"]["name"]: each["spec"]["egress"][0]
        for each in yaml.safe_load_all((EXAMPLE / "servers.yaml").read_text("utf-8"))
    }
    return {
        "settings": (EXAMPLE / "outbox.toml").read_text("utf-8"),
        "publisher": {"image": images["spark-outbox/publisher"]},
        "sparkJob": {"image": images["spark-outbox/spark-job"], "replicas": job["count"]},
        "network": {
            "postgres": servers["outbox-postgres"]["to"],
            "postgresPort": servers["outbox-postgres"]["ports"][0]["port"],
            "kafka": servers["outbox-kafka"]["to"],
            "kafkaPort": servers["outbox-kafka"]["ports"][0]["port"],
        },
    }


def test_the_chart_is_what_make_helm_chart_makes(tmp_path: Path) -> None:
    subprocess.run([sys.executable, ROOT / "deploy/helm/make.py", tmp_path], check=True)

    def texts(folder: Path) -> dict[str, str]:
        return {
            str(path.relative_to(folder)): path.read_text("utf-8")
            for path in folder.rglob("*")
            if path.is_file()
        }

    assert texts(CHART) == texts(tmp_path)


def test_without_values_it_is_the_base(tmp_path: Path) -> None:
    assert compared(chart({}, tmp_path)) == compared(objects(BASE))


def test_with_the_examples_values_it_is_the_example(tmp_path: Path) -> None:
    """What kustomize changes in it is compared where kustomize builds it; its own files always are."""
    made = compared(chart(example(), tmp_path))
    expected = compared(objects(EXAMPLE))
    if KUSTOMIZE:
        assert made == expected
    assert made.keys() == expected.keys() | {("ConfigMap", "outbox")}
    policies = [key for key in made if key[0] == "NetworkPolicy"]
    assert len(policies) == 5
    assert {key: made[key] for key in policies} == {key: expected[key] for key in policies}
    assert made[("ConfigMap", "outbox")]["data"] == {"outbox.toml": example()["settings"]}


def test_the_schemas_of_kubernetes_accept_every_object(tmp_path: Path) -> None:
    for each in chart(example(), tmp_path):
        kubernetes_validate.validate(each, KUBERNETES.rpartition(".")[0], strict=True)


def test_changed_settings_are_a_rollout(tmp_path: Path) -> None:
    def checksums(settings: str) -> set[str]:
        return {
            each["spec"]["template"]["metadata"]["annotations"]["checksum/settings"]
            for each in chart({"settings": settings}, tmp_path)
            if each["kind"] == "Deployment"
        }

    (before,), (after,) = checksums("[source]\n"), checksums("[sink]\n")
    assert before != after


def test_the_schema_is_brought_up_before_the_services_change(tmp_path: Path) -> None:
    hooks = {
        each["metadata"]["name"]: each["metadata"]["annotations"]
        for each in chart({}, tmp_path)
        if "annotations" in each["metadata"]
    }
    assert hooks == {
        "outbox-migrate": {
            "helm.sh/hook": "pre-install,pre-upgrade",
            "helm.sh/hook-delete-policy": "before-hook-creation",
        }
    }


@pytest.mark.parametrize(
    "values", [{}, example(), {"publisher": {"replicas": None}}], ids=["none", "example", "scaled"]
)
def test_the_schema_of_the_values_accepts_what_is_right(values: Any) -> None:
    jsonschema.validate(merged(DEFAULTS, values), SCHEMA)


@pytest.mark.parametrize(
    "values",
    [
        {"publishers": {}},
        {"publisher": {"replica": 3}},
        {"publisher": {"replicas": -1}},
        {"publisher": {"image": ""}},
        {"sparkJob": {"driverMemory": "2 GB"}},
        {"network": {"kafkaPort": "9093"}},
        {"settings": {"source": {}}},
        {"network": {"metrics": []}},
    ],
    ids=str,
)
def test_the_schema_of_the_values_refuses_what_is_wrong(values: Any) -> None:
    """A policy without peers would let everybody in; `null` removes a value."""
    assert SCHEMA["properties"]["network"]["required"] == ["metrics"]
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(merged(DEFAULTS, values), SCHEMA)

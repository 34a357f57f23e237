"""Makes the Helm chart out of the manifests for kustomize, so that both install the same objects.

python deploy/helm/make.py TARGET

`VALUES` says which places of which objects a value fills. Its default is the content of these places in deploy/kubernetes.
"""

import json
import sys
import textwrap
from pathlib import Path
from typing import Any, NamedTuple

import yaml

KUBERNETES = Path(__file__).parents[1] / "kubernetes"
BASE, SERVERS = KUBERNETES / "base", KUBERNETES / "overlays" / "example" / "servers.yaml"
MADE = "# Made from deploy/kubernetes by `make helm-chart`.\n"


class Value(NamedTuple):
    """A value of the chart, and the places that it fills: (kind, name, keys down to it). An item of a list is a number, or its name."""

    name: str
    meaning: str
    schema: dict[str, Any]
    places: tuple[tuple[str, str, tuple[str | int, ...]], ...]


def _replicas(service: str) -> tuple[str, str, tuple[str | int, ...]]:
    return "Deployment", service, ("spec", "replicas")


def _container(service: str, *keys: str) -> tuple[str, str, tuple[str | int, ...]]:
    return "Deployment", service, ("spec", "template", "spec", "containers", 0, *keys)


_IMAGE = {"type": "string", "pattern": "^[^\\s]+$"}
_COUNT = {"type": ["integer", "null"], "minimum": 0}
_RESOURCES = {"type": "object"}
_PEERS = {"type": "array", "items": {"type": "object"}}
_PORT = {"type": "integer", "minimum": 1, "maximum": 65535}
VALUES = (
    Value(
        "settings",
        "Your outbox.toml (docs/configuration.md). Nothing in it is secret: DSN, user and password of Kafka are in the Secrets.",
        {"type": "string"},
        (("ConfigMap", "outbox", ("data", "outbox.toml")),),
    ),
    Value(
        "publisher.image",
        "Of the publisher and of the Job outbox-migrate, with its tag or digest.",
        _IMAGE,
        (
            _container("publisher", "image"),
            ("Job", "outbox-migrate", ("spec", "template", "spec", "containers", 0, "image")),
        ),
    ),
    Value(
        "publisher.replicas",
        "Replicas beyond the number of lanes stand by. null: KEDA or another controller sets it.",
        _COUNT,
        (_replicas("publisher"),),
    ),
    Value(
        "publisher.resources", "Memory: docs/lanes.md.", _RESOURCES, (_container("publisher", "resources"),)
    ),
    Value(
        "sparkJob.image",
        "Yours, with your transform, and its tag or digest.",
        _IMAGE,
        (_container("spark-job", "image"),),
    ),
    Value("sparkJob.replicas", "A second one is a standby.", _COUNT, (_replicas("spark-job"),)),
    Value(
        "sparkJob.resources",
        "Memory: driverMemory and 2 GiB. The limit of CPU is the number of cores that Spark uses.",
        _RESOURCES,
        (_container("spark-job", "resources"),),
    ),
    Value(
        "sparkJob.driverMemory",
        "The heap of the JVM.",
        {"type": "string", "pattern": "^[0-9]+[mg]$"},
        (_container("spark-job", "env", "OUTBOX_JOB__DRIVER_MEMORY", "value"),),
    ),
    Value(
        "network.metrics",
        "Where Prometheus is: peers of a NetworkPolicy, at least one. Without any, Kubernetes would let in everybody.",
        _PEERS | {"minItems": 1},
        (("NetworkPolicy", "outbox-metrics", ("spec", "ingress", 0, "from")),),
    ),
    Value(
        "network.postgres",
        "Where Postgres is: peers of a NetworkPolicy. Without any, there is no such policy, and outbox-deny decides.",
        _PEERS,
        (("NetworkPolicy", "outbox-postgres", ("spec", "egress", 0, "to")),),
    ),
    Value(
        "network.postgresPort",
        "Its port.",
        _PORT,
        (("NetworkPolicy", "outbox-postgres", ("spec", "egress", 0, "ports", 0, "port")),),
    ),
    Value(
        "network.kafka",
        "Where all brokers are, and with OAUTHBEARER the token endpoint: peers of a NetworkPolicy.",
        _PEERS,
        (("NetworkPolicy", "outbox-kafka", ("spec", "egress", 0, "to")),),
    ),
    Value(
        "network.kafkaPort",
        "Their port.",
        _PORT,
        (("NetworkPolicy", "outbox-kafka", ("spec", "egress", 0, "ports", 0, "port")),),
    ),
)
OF_AN_OVERLAY = {"settings": "", "network.postgres": [], "network.kafka": []}
"""What the base does not have: {value: its default}. The object is there where the value is not empty."""
HOOK = {"helm.sh/hook": "pre-install,pre-upgrade", "helm.sh/hook-delete-policy": "before-hook-creation"}
"""The schema is brought up before the pods are changed, and a Job, whose template cannot be changed, is made again."""
CHART = {
    "apiVersion": "v2",
    "name": "spark-outbox",
    "description": "Exactly-once session outputs from Spark to Kafka: a transactional Postgres outbox and a sidecar publisher",
    "type": "application",
    "version": "0.0.0",
    "kubeVersion": ">=1.31.0-0",
}
"""The version is the release's: `make helm-package`."""


def main(target: Path) -> None:
    """Write the chart."""
    files = {path.stem: _read(path) for path in sorted(BASE.glob("*.yaml")) if path.stem != "kustomization"}
    settings = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "outbox"},
        "data": {"outbox.toml": ""},
    }
    postgres, kafka = _read(SERVERS)
    overlays = {"settings": [settings], "network.postgres": [postgres], "network.kafka": [kafka]}
    everything = [each for objects in (*files.values(), *overlays.values()) for each in objects]
    defaults = {value.name: _fill(value, everything) for value in VALUES} | OF_AN_OVERLAY
    for each in everything:
        _annotate(each)
    texts = {name: MADE + _template(objects) for name, objects in files.items()}
    for name, objects in overlays.items():
        texts[name] = f"{{{{- if .Values.{name} }}}}\n{MADE}{_template(objects)}{{{{- end }}}}\n"
    (target / "templates").mkdir(parents=True, exist_ok=True)
    for name, text in texts.items():
        (target / "templates" / f"{name}.yaml").write_text(text, "utf-8")
    (target / "Chart.yaml").write_text(MADE + yaml.safe_dump(CHART, sort_keys=False, width=200), "utf-8")
    (target / "values.yaml").write_text(MADE + _values(_nested(defaults), ""), "utf-8")
    schema = _schema(_nested({value.name: value for value in VALUES}))
    schema["properties"]["global"] = {"type": "object"}  # Helm's own
    schema = {"$schema": "http://json-schema.org/draft-07/schema#"} | schema
    (target / "values.schema.json").write_text(json.dumps(schema, indent=2) + "\n", "utf-8")


def _read(path: Path) -> list[Any]:
    return list(yaml.safe_load_all(path.read_text("utf-8")))


def _fill(value: Value, objects: list[Any]) -> Any:
    """Put a mark into each of the value's places; return what was there."""
    found = []
    for kind, name, keys in value.places:
        (at,) = (each for each in objects if (each["kind"], each["metadata"]["name"]) == (kind, name))
        *steps, last = keys
        for step in steps:
            named = isinstance(at, list) and isinstance(step, str)
            at = next(each for each in at if each["name"] == step) if named else at[step]
        found.append(at[last])
        at[last] = f"<<toJson .Values.{value.name}>>"
    if any(each != found[0] for each in found):
        raise ValueError(f"{value.name} has places that differ: {found}")
    return found[0]


def _annotate(found: Any) -> None:
    """Add what is Helm's own: the Job is a hook, and changed settings are a rollout."""
    if found["kind"] == "Job":
        found["metadata"]["annotations"] = HOOK
    if found["kind"] == "Deployment":
        annotations = {"checksum/settings": "<<sha256sum .Values.settings>>"}
        found["spec"]["template"]["metadata"]["annotations"] = annotations


def _template(objects: list[Any]) -> str:
    text = "---\n".join(yaml.dump(each, Dumper=_Dumper, sort_keys=False, width=10_000) for each in objects)
    # A place is a whole scalar, so its quotes, where there are some, go with the mark.
    for quote in ("'", '"', ""):
        text = text.replace(f"{quote}<<", "{{ ").replace(f">>{quote}", " }}")
    return text


class _Dumper(yaml.SafeDumper):
    """Writes a shared object at each of its places, without anchors and aliases."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _nested(flat: dict[str, Any]) -> dict[str, Any]:
    """{"a.b": 1} -> {"a": {"b": 1}}"""
    made: dict[str, Any] = {}
    for name, value in flat.items():
        *folders, last = name.split(".")
        at = made
        for folder in folders:
            at = at.setdefault(folder, {})
        at[last] = value
    return made


def _values(nested: dict[str, Any], prefix: str) -> str:
    meanings = {value.name: value.meaning for value in VALUES}
    text = ""
    for key, value in nested.items():
        name = f"{prefix}{key}"
        if name in meanings:
            text += f"# {meanings[name]}\n" + yaml.dump(
                {key: value}, Dumper=_Dumper, sort_keys=False, width=10_000
            )
        else:
            text += f"{key}:\n" + textwrap.indent(_values(value, f"{name}."), "  ")
    return text


def _schema(nested: dict[str, Any]) -> dict[str, Any]:
    properties = {
        key: {"description": value.meaning} | value.schema if isinstance(value, Value) else _schema(value)
        for key, value in nested.items()
    }
    # Helm removes a value that is null.
    required = [key for key, schema in properties.items() if "minItems" in schema]
    return {"type": "object", "additionalProperties": False, "properties": properties, "required": required}


if __name__ == "__main__":
    main(Path(sys.argv[1]))

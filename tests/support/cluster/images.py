"""The images of the pods: built by the tests' container engine, handed over to the node's containerd."""

import subprocess
from collections.abc import Mapping
from pathlib import Path

from tests.support.cluster.cluster import Cluster
from tests.support.cluster.errors import ClusterError
from tests.support.engine import stand_ins
from tests.support.engine.engine import Engine
from tests.support.engine.python_image import python_image
from tests.support.engine.stand_ins import KAFKA, POSTGRES, PYTHON
from tests.support.paths import ROOT

TAG = "test"
NEXT_TAG = "next"
"""Another name of the same images, for rollouts."""
_PREFIX = "docker.io/spark-outbox/"
_PLAIN_BUILDER = {"DOCKER_BUILDKIT": "0"}
_BUILD_TIMEOUT_S = 3_600.0
_SERVICES = {"publisher": "publisher/Dockerfile", "spark-job": "spark_job/Dockerfile"}
_PROGRAMS = ("dns", "pause")


def build(engine: Engine, programs: Path) -> dict[str, str]:
    """Build what has changed: {name in the manifests: the image's id}."""
    stand_ins.provide(engine, (PYTHON, POSTGRES, KAFKA))
    names = {
        "spark-outbox/test-postgres": engine.image(POSTGRES),
        "spark-outbox/test-kafka": engine.image(KAFKA),
    }
    for name in _PROGRAMS:
        image = f"spark-outbox/cluster-{name}"
        recipe = f'FROM scratch\nCOPY {name} /{name}\nENTRYPOINT ["/{name}"]\n'
        (programs / name / "Dockerfile").write_text(recipe, "utf-8")
        engine.run("build", "--tag", f"{image}:{TAG}", str(programs / name), environment=_PLAIN_BUILDER)
        names[image] = f"{image}:{TAG}"
    python = f"PYTHON_IMAGE={python_image(engine)}"
    for name, recipe in _SERVICES.items():
        image = f"spark-outbox/{name}"
        options = ("--network", "host", "--build-arg", python, "--file", recipe, "--tag", f"{image}:{TAG}")
        engine.run(
            *("build", *options, "."), cwd=ROOT, environment=_PLAIN_BUILDER, timeout_s=_BUILD_TIMEOUT_S
        )
        names[image] = f"{image}:{TAG}"
    return {
        image: engine.run("image", "inspect", "--format", "{{.Id}}", name).stdout.strip()
        for image, name in names.items()
    }


def hand_over(engine: Engine, images: Mapping[str, str], cluster: Cluster) -> None:
    """Give the node's containerd what it lacks, under TAG and NEXT_TAG; forget what is no longer used. Layers that it has are kept."""
    references = {name: f"{name}:{image.removeprefix('sha256:')[:12]}" for name, image in images.items()}
    there = set(cluster.ctr("images", "list", "--quiet").split())
    missing = [name for name, reference in references.items() if f"docker.io/{reference}" not in there]
    for name in missing:
        engine.run("tag", images[name], references[name])
    if missing:
        _import(engine, [references[name] for name in missing], cluster)
    for name in missing:
        engine.run("image", "rm", "--no-prune", references[name])
    kept = {f"docker.io/{reference}" for reference in references.values()}
    for name, reference in references.items():
        for tag in (TAG, NEXT_TAG):
            cluster.ctr("images", "tag", "--force", f"docker.io/{reference}", f"docker.io/{name}:{tag}")
            kept.add(f"docker.io/{name}:{tag}")
    old = [name for name in there if name.startswith(_PREFIX) and name not in kept]
    if old:
        cluster.ctr("images", "remove", *old)


def _import(engine: Engine, references: list[str], cluster: Cluster) -> None:
    saving = subprocess.Popen(
        ["docker", "save", *references],
        env=engine.environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    with saving:
        assert saving.stderr is not None
        cluster.ctr("images", "import", "-", stdin=saving.stdout)
        said = saving.stderr.read().decode(errors="replace")
    if saving.returncode != 0:
        raise ClusterError(f"'docker save {' '.join(references)}' failed:\n{said}")

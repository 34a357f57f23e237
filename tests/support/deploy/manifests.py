"""deploy/kubernetes as it is applied: read file by file, or with KUSTOMIZE in the environment as that command builds it."""

import os
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from tests.support.paths import ROOT

BASE = ROOT / "deploy" / "kubernetes" / "base"
EXAMPLE = ROOT / "deploy" / "kubernetes" / "overlays" / "example"
KUSTOMIZE = os.environ.get("KUSTOMIZE")


def objects(folder: Path) -> list[Any]:
    """What is applied: built by KUSTOMIZE, or read from the files that the folder's kustomization names."""
    if KUSTOMIZE:
        command = [*shlex.split(KUSTOMIZE), str(folder)]
        built = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, timeout=300)
        return list(yaml.safe_load_all(built.stdout))
    return list(read(folder))


def read(folder: Path) -> Iterator[Any]:
    for name in kustomization(folder)["resources"]:
        if (folder / name).is_dir():
            yield from read(folder / name)
        else:
            yield from yaml.safe_load_all((folder / name).read_text("utf-8"))


def kustomization(folder: Path) -> Any:
    return yaml.safe_load((folder / "kustomization.yaml").read_text("utf-8"))

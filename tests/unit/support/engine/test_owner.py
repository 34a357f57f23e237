"""Which things on a shared engine are nobody's any more."""

from dataclasses import replace
from pathlib import Path

import pytest

from tests.support.engine.engine import Engine
from tests.support.engine.owner import Owner, remove_leftovers

HERE = Owner.this()
GONE = replace(HERE, process=replace(HERE.process, birth="another-boot/1"))


def test_a_label_is_read_as_it_was_written() -> None:
    assert Owner.read(str(HERE)) == HERE


@pytest.mark.parametrize("label", ["", "somebody", "12@boot/1", "host/4026531836/x@boot/1"])
def test_a_label_of_another_form_names_nobody(label: str) -> None:
    assert Owner.read(label) is None


def test_only_who_lived_here_can_be_known_to_be_gone() -> None:
    assert not HERE.is_gone()
    assert GONE.is_gone()
    assert not replace(GONE, namespace="another-host/4026531836").is_gone()
    assert not replace(GONE, namespace=HERE.namespace.rpartition("/")[0] + "/1").is_gone()


@pytest.mark.parametrize(
    ("label", "removed"),
    [
        (str(GONE), True),
        (str(HERE), False),
        (str(replace(GONE, namespace="elsewhere/1")), False),
        ("?", False),
    ],
    # Named, because the labels differ from process to process, and all workers of a run must find the same tests.
    ids=["gone", "here", "elsewhere", "unknown"],
)
def test_what_a_killed_run_left_is_removed_users_before_what_they_use(
    tmp_path: Path, label: str, removed: bool
) -> None:
    asked = tmp_path / "asked"
    docker = tmp_path / "docker"
    docker.write_text(
        f'#!/bin/sh\necho "$*" >> {asked}\n[ "$2" != ls ] || echo "a-$1"\n[ "$2" != inspect ] || echo "{label}"\n'
    )
    docker.chmod(0o755)
    remove_leftovers(Engine({"PATH": f"{tmp_path}:/bin:/usr/bin"}, is_ours=False))
    removals = [line.split() for line in asked.read_text().splitlines() if line.split()[1] == "rm"]
    kinds = ["container", "network", "volume", "image"] if removed else []
    assert [(words[0], words[-1]) for words in removals] == [(kind, f"a-{kind}") for kind in kinds]

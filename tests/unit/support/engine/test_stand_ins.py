"""When a stand-in is built anew, and that real images are left alone."""

from dataclasses import replace
from pathlib import Path

import pytest

from tests.support.engine import stand_ins
from tests.support.engine.engine import Engine
from tests.support.engine.stand_ins import KAFKA, RECIPES, Recipe, provide, recipe_hash


@pytest.fixture
def recipe(tmp_path: Path) -> Recipe:
    """A recipe of one file and one input."""
    (tmp_path / "Dockerfile").write_text("FROM scratch\n")
    return Recipe("imitated:1", tmp_path, inputs=lambda: ["1.0"], add=lambda context: None)


def test_an_unchanged_recipe_keeps_its_hash(recipe: Recipe) -> None:
    assert recipe_hash(recipe) == recipe_hash(replace(recipe))


def test_a_changed_file_mode_or_input_gives_another_hash(recipe: Recipe) -> None:
    file = recipe.folder / "Dockerfile"
    seen = [recipe_hash(recipe), recipe_hash(replace(recipe, inputs=lambda: ["1.1"]))]
    file.chmod(0o755)
    seen.append(recipe_hash(recipe))
    file.write_text("FROM scratch\nUSER 1\n")
    seen.append(recipe_hash(recipe))
    assert len(set(seen)) == len(seen)


def test_each_recipe_of_ours_has_what_it_is_made_from() -> None:
    assert len({recipe_hash(each) for each in RECIPES.values()}) == len(RECIPES)


def _engine(tmp_path: Path, answers: str) -> tuple[Engine, Path]:
    """An engine whose `docker` writes down what it is asked, and `answers` as a shell script's lines."""
    asked = tmp_path / "asked"
    docker = tmp_path / "docker"
    docker.write_text(f'#!/bin/sh\necho "$*" >> {asked}\n{answers}\n')
    docker.chmod(0o755)
    return Engine({"PATH": f"{tmp_path}:/bin:/usr/bin"}, is_ours=True), asked


def test_a_real_image_is_neither_pulled_nor_replaced(tmp_path: Path) -> None:
    engine, asked = _engine(tmp_path, "exit 0")
    provide(engine, [KAFKA])
    assert engine.image(KAFKA) == KAFKA
    assert all(line.startswith("image inspect") for line in asked.read_text().splitlines())


def test_an_image_that_can_be_pulled_is(tmp_path: Path) -> None:
    engine, asked = _engine(tmp_path, '[ "$1" = pull ]')
    provide(engine, [KAFKA])
    assert asked.read_text().splitlines()[-1] == f"pull --quiet {KAFKA}"


def test_what_cannot_be_pulled_is_built_once_and_nothing_more_is_pulled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    built: list[str] = []
    monkeypatch.setattr(stand_ins, "base_image", lambda engine: "base")
    monkeypatch.setattr(stand_ins, "_build", lambda engine, recipe, base, tag: built.append(recipe.image))
    engine, asked = _engine(tmp_path, "exit 1")
    provide(engine, RECIPES)
    assert sorted(built) == sorted(RECIPES)
    assert sum(line.startswith("pull") for line in asked.read_text().splitlines()) == 1


def test_a_stand_in_never_takes_the_official_name(tmp_path: Path) -> None:
    """Also where a stand-in of ours is there already, and where one has the official name from former times."""
    engine, asked = _engine(tmp_path, '[ "$1" = image ] && echo stand-in')
    assert engine.image(KAFKA) == KAFKA
    provide(engine, [KAFKA])
    assert engine.image(KAFKA) == f"spark-outbox/stand-in-kafka:{recipe_hash(RECIPES[KAFKA])}"
    assert [line for line in asked.read_text().splitlines() if not line.startswith(("image", "pull"))] == []

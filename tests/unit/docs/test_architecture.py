"""docs/architecture.md names modules, connections, locks, topics and channels that there are."""

import re
from pathlib import Path

import pytest

from tests.support.pages.markdown import tables
from tests.support.paths import ROOT

PAGE = Path("docs/architecture.md")
# Their `__init__.py` list their folders.
SERVICES = ("spark_job", "publisher", "service")
FOLDERS = ("spark_job", "db", "publisher", "service", "devstack", "outbox_consumer")
_MODULE = re.compile(rf"`((?:{'|'.join(FOLDERS)})/[\w/]*(?:\.\w+)?)`")


def named() -> list[str]:
    """Every module and package that the page names with its folder."""
    return sorted(set(_MODULE.findall((ROOT / PAGE).read_text("utf-8"))))


@pytest.mark.parametrize("path", named())
def test_a_module_that_is_named_exists(path: str) -> None:
    assert (ROOT / path).is_dir() if path.endswith("/") else (ROOT / path).is_file()


@pytest.mark.parametrize("folder", [folder for folder in FOLDERS if folder not in SERVICES])
def test_every_package_has_its_line(folder: str) -> None:
    packages = {f"{folder}/{init.parent.name}/" for init in (ROOT / folder).glob("*/__init__.py")}
    assert packages <= set(named())


def test_the_locks_and_channels_are_those_of_the_statements() -> None:
    statements = "\n".join(
        path.read_text("utf-8") for folder in FOLDERS[:3] for path in (ROOT / folder).rglob("*.sql")
    )
    page = (ROOT / PAGE).read_text("utf-8")
    locks = set(re.findall(r"hashtext(?:extended)?\('outbox\.\w+'(?:, 0)?\)", statements))
    assert locks == set(re.findall(r"hashtext(?:extended)?\('outbox\.\w+'(?:, 0)?\)", page))
    channels = set(re.findall(r"outbox\.wake\('(\w+)'", statements))
    assert channels == set(re.findall(r"`(outbox_(?:batch|publisher)\w*)`", page))


def test_the_steps_of_a_session_and_of_its_crashes_are_the_same() -> None:
    steps = next([row[0] for row in body] for head, body in tables(PAGE) if head[0] == "step")
    assert steps == [str(number) for number in range(1, len(steps) + 1)]
    between = [row[0] for head, body in tables(PAGE) if head[0] == "died between" for row in body]
    assert {number for place in between for number in re.findall(r"\d+", place)} <= set(steps)


_FEW_MODULES = 5
INDEXES = [
    init
    for service in SERVICES
    for init in sorted((ROOT / service).rglob("__init__.py"))
    if "\n- " in init.read_text("utf-8") or init.parent.parent == ROOT
]


def test_a_package_of_service_with_many_modules_has_an_index() -> None:
    many = {path.parent for path in (ROOT / "service").rglob("*.py")}
    many = {folder for folder in many if len(list(folder.glob("*.py"))) > _FEW_MODULES}
    assert {folder / "__init__.py" for folder in many} <= set(INDEXES)


@pytest.mark.parametrize("init", INDEXES, ids=lambda init: str(init.parent.relative_to(ROOT)))
def test_the_index_of_a_package_names_each_of_its_modules(init: Path) -> None:
    folder = init.parent
    lines = re.findall(r"^- .*(?:\n  .*)*", init.read_text("utf-8"), re.MULTILINE)
    named = set(re.findall(r"(?<![\w/])(\w+(?:\.py|/))", "\n".join(lines)))
    modules = {path.name for path in folder.glob("*.py") if path != init}
    packages = {f"{path.parent.name}/" for path in folder.glob("*/__init__.py")}
    assert modules | packages <= named
    assert all((folder / name).exists() for name in named if name.endswith(".py")), named

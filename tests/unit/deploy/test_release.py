"""The release workflow: its commands are targets of the Makefile, its rights are the least, and what it signs with runs no code of ours.

Whether a forge accepts the file is what `make check-workflows` asks actionlint; nothing here has run on a forge.
"""

import re
import tomllib
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from tests.support.paths import ROOT

WORKFLOW: Any = yaml.safe_load((ROOT / ".github/workflows/release.yml").read_text("utf-8"))
JOBS: dict[str, Any] = WORKFLOW["jobs"]
RIGHTS = {
    "test": {"contents": "read"},
    "packages": {"contents": "read"},
    "images": {"contents": "read", "packages": "write"},
    "image-index": {"packages": "write", "id-token": "write", "attestations": "write"},
    "publish": {"id-token": "write", "attestations": "write"},
    "files": {"contents": "write"},
    "site": {"pages": "write", "id-token": "write"},
}


def commands(job: Any) -> str:
    return "\n".join(step.get("run", "") for step in job["steps"])


def used(job: Any) -> Iterator[tuple[str, Any]]:
    """(action, its step)"""
    return ((step["uses"], step) for step in job["steps"] if "uses" in step)


def test_every_target_that_it_makes_exists() -> None:
    makefile = (ROOT / "Makefile").read_text("utf-8")
    made = {name for job in JOBS.values() for name in re.findall(r"\bmake ([a-z-]+)", commands(job))}
    assert made == {"dist", "sbom", "docs-site", "helm-package", "images"}
    for name in made:
        assert re.search(rf"^{name}:.*## ", makefile, re.MULTILINE), name
    lines = [line for job in JOBS.values() for line in commands(job).splitlines() if "make " in line]
    for variable in re.findall(r"\b([A-Z]+)=", "\n".join(lines)):
        assert re.search(rf"\$\([^)]*\b{variable}\b", makefile), variable
    assert commands(JOBS["test"]).strip() == ".ci/run"


def test_it_has_the_rights_that_its_jobs_need_and_no_others() -> None:
    assert WORKFLOW["permissions"] == {}
    assert {name: job["permissions"] for name, job in JOBS.items()} == RIGHTS


@pytest.mark.parametrize(
    "name",
    [name for name, rights in RIGHTS.items() if "id-token" in rights or rights.get("contents") == "write"],
)
def test_a_job_that_signs_or_publishes_runs_no_code_of_the_repository(name: str) -> None:
    assert not [action for action, _ in used(JOBS[name]) if action.startswith("actions/checkout@")]
    assert "make" not in commands(JOBS[name])


def test_nothing_is_published_before_every_test_and_build() -> None:
    def before(name: str) -> set[str]:
        needed = JOBS[name].get("needs", [])
        direct = {needed} if isinstance(needed, str) else set(needed)
        return direct | {each for one in direct for each in before(one)}

    for name in ("publish", "files", "site"):
        assert before(name) >= {"test", "packages", "images", "image-index"}
    assert before("images") == before("packages") == {"test"}


def test_there_is_no_secret_but_the_runs_own_token() -> None:
    assert "secrets." not in (ROOT / ".github/workflows/release.yml").read_text("utf-8")
    (published,) = (step for action, step in used(JOBS["publish"]) if action.startswith("pypa/"))
    assert published["with"] == {"packages-dir": "dist"}
    assert JOBS["publish"]["environment"] == "pypi"


def test_an_action_is_named_by_its_commit_with_the_version_beside_it() -> None:
    """A tag can be moved. No expression of the run is put into a command, where a tag's name could be code."""
    for line in (ROOT / ".github/workflows/release.yml").read_text("utf-8").splitlines():
        if "uses:" in line:
            assert re.search(r"uses: [\w-]+/[\w-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+$", line), line
    for job in JOBS.values():
        assert "${{" not in commands(job)
        for action, step in used(job):
            if action.startswith("actions/checkout@"):
                assert step["with"]["persist-credentials"] is False


@pytest.mark.parametrize(
    ("tag", "released"),
    [
        ("v0.9.0", True),
        ("v1.12.3rc1", True),
        ("v1", False),
        ("v1.2.3-1", False),
        ("v1.2.3.dev4", False),
        ("versions", False),
        ("0.9.0", False),
    ],
)
def test_a_tag_starts_it_only_where_the_package_takes_its_version_from_it(tag: str, released: bool) -> None:
    patterns = WORKFLOW[True]["push"]["tags"]  # `on` is true in YAML 1.1
    assert any(re.fullmatch(each.replace(".", r"\."), tag) for each in patterns) is released
    pattern = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["hatch"]["version"][
        "tag-pattern"
    ]
    assert not released or re.match(pattern, tag)

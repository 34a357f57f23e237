"""The bills of materials that `make sbom` has written name everything that is deployed."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyspark
import pytest

from tests.support.paths import ROOT

pytestmark = pytest.mark.sbom

_PINNED = re.compile(r"^([A-Za-z0-9._-]+)==([^ ;\\]+)", re.MULTILINE)


def components(service: str) -> list[dict[str, Any]]:
    """Every component of a bill, those within others too."""
    bill = json.loads((ROOT / "build" / f"sbom-{service}.json").read_text("utf-8"))
    return list(_all(bill["components"]))


def by_url(service: str) -> dict[str, dict[str, Any]]:
    """Those that have a package URL, by it."""
    return {each["purl"].partition("?")[0]: each for each in components(service) if "purl" in each}


def _all(found: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    for each in found:
        yield each
        yield from _all(each.get("components", []))


@pytest.mark.parametrize("service", ["job", "publisher"])
def test_every_pinned_requirement_is_in_it_with_hashes(service: str) -> None:
    pinned = _PINNED.findall((ROOT / "requirements" / f"{service}.txt").read_text("utf-8"))
    assert len(pinned) > 10
    listed = by_url(service)
    assert [each for each in pinned if f"pkg:pypi/{'@'.join(each)}" not in listed] == []
    for name, version in pinned:
        component = listed[f"pkg:pypi/{name}@{version}"]
        assert any(reference.get("hashes") for reference in component["externalReferences"]), name


def test_every_jar_that_the_job_downloads_is_in_it_with_its_hash() -> None:
    lock = (ROOT / "spark_job" / "spark" / "jars.lock").read_text("utf-8")
    jars = [line.split() for line in lock.splitlines() if not line.startswith("#")]
    assert len(jars) >= 4
    listed = by_url("job")
    for coordinate, _, sha256 in jars:
        group, name, version = coordinate.split(":")
        assert listed[f"pkg:maven/{group}/{name}@{version}"]["hashes"] == [
            {"alg": "SHA-256", "content": sha256}
        ]


def test_every_jar_that_pyspark_brings_is_in_it() -> None:
    brought = {path.name for path in (Path(pyspark.__file__).parent / "jars").glob("*.jar")}
    assert len(brought) > 100
    listed = {f"{each['name']}-{each['version']}.jar" for each in components("job") if "version" in each}
    assert brought - listed == set()


def test_the_publisher_has_no_jar() -> None:
    assert [each for each in components("publisher") if not each["purl"].startswith("pkg:pypi/")] == []

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


def components(service: str) -> dict[str, dict[str, Any]]:
    """Every component of a bill, those within others too, by `name==version`."""
    bill = json.loads((ROOT / "build" / f"sbom-{service}.json").read_text("utf-8"))
    return {f"{each['name']}=={each.get('version')}": each for each in _all(bill["components"])}


def _all(found: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    for each in found:
        yield each
        yield from _all(each.get("components", []))


@pytest.mark.parametrize("service", ["job", "publisher"])
def test_every_pinned_requirement_is_in_it_with_hashes(service: str) -> None:
    pinned = _PINNED.findall((ROOT / "requirements" / f"{service}.txt").read_text("utf-8"))
    assert len(pinned) > 10
    listed = components(service)
    assert [f"{name}=={version}" for name, version in pinned if f"{name}=={version}" not in listed] == []
    for name, version in pinned:
        component = listed[f"{name}=={version}"]
        assert component["purl"].startswith(f"pkg:pypi/{name}@{version}")
        assert any(reference.get("hashes") for reference in component["externalReferences"]), name


def test_every_jar_that_the_job_downloads_is_in_it_with_its_hash() -> None:
    lock = (ROOT / "spark_job" / "spark" / "jars.lock").read_text("utf-8")
    jars = [line.split() for line in lock.splitlines() if not line.startswith("#")]
    assert len(jars) >= 4
    listed = components("job")
    for coordinate, _, sha256 in jars:
        group, name, version = coordinate.split(":")
        component = listed[f"{name}=={version}"]
        assert component["purl"] == f"pkg:maven/{group}/{name}@{version}"
        assert component["hashes"] == [{"alg": "SHA-256", "content": sha256}]


def test_every_jar_that_pyspark_brings_is_in_it() -> None:
    brought = {path.name for path in (Path(pyspark.__file__).parent / "jars").glob("*.jar")}
    assert len(brought) > 100
    listed = {
        f"{each['name']}-{each['version']}.jar" for each in components("job").values() if "version" in each
    }
    assert brought - listed == set()


def test_the_publisher_has_no_jar() -> None:
    assert [
        each for each in components("publisher").values() if not each["purl"].startswith("pkg:pypi/")
    ] == []

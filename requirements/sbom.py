"""Writes the software bills of materials of what is deployed, as CycloneDX 1.6: `build/sbom-job.json`, `build/sbom-publisher.json`.

In each are the pinned requirements of the service; in the job's, the jars that it downloads (spark_job/spark/jars.lock) and, within
pyspark, those that pyspark's wheel brings. Run by `make sbom` with the tools of requirements/audit.txt, which the services do not need.
"""

import argparse
import hashlib
import json
import re
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

from cyclonedx.model import HashAlgorithm, HashType
from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.output import make_outputter
from cyclonedx.schema import OutputFormat, SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
from packageurl import PackageURL

ROOT = Path(__file__).parents[1]
SCHEMA = SchemaVersion.V1_6
SERVICES = {"job": [ROOT / "spark_job" / "spark" / "jars.lock"], "publisher": []}
"""Service -> its lock files of jars."""

_FILENAME = re.compile(r"(?P<name>.+?)-(?P<version>\d[\w.-]*)\.jar")
_POM = re.compile(r"META-INF/maven/(?P<group>[^/]+)/(?P<artifact>[^/]+)/pom\.properties")


def bill(service: str, spark_jars: Path) -> Bom:
    """Return the bill of a service. `spark_jars`: the folder of jars in an installed pyspark."""
    command = [sys.executable, "-m", "cyclonedx_py", "requirements", f"requirements/{service}.txt"]
    command += ["--pyproject", "pyproject.toml", "--mc-type", "application", "--output-reproducible"]
    listed = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    found: Bom = Bom.from_json(json.loads(listed))  # type: ignore[attr-defined]  # its decorator makes it
    for lock in SERVICES[service]:
        found.components.update(locked(lock))
    for component in found.components:
        if component.name == "pyspark":
            component.components.update(map(bundled, sorted(spark_jars.glob("*.jar"))))
    assert found.metadata.component is not None
    found.register_dependency(found.metadata.component, found.components)
    return found


def locked(lock: Path) -> Iterator[Component]:
    """Yield the jars of a lock file."""
    for line in lock.read_text("utf-8").splitlines():
        if line and not line.startswith("#"):
            coordinate, _, sha256 = line.split()
            yield jar(*coordinate.split(":"), sha256=sha256)


def bundled(path: Path) -> Component:
    """Return a jar in a wheel: by its file's name, and the group that Maven noted in it."""
    named = _FILENAME.fullmatch(path.name)
    name, version = (named["name"], named["version"]) if named else (path.stem, None)
    with zipfile.ZipFile(path) as content:
        poms = filter(None, map(_POM.fullmatch, content.namelist()))
        group = next((pom["group"] for pom in poms if pom["artifact"] == name), None)
    return jar(group, name, version, sha256=hashlib.sha256(path.read_bytes()).hexdigest())


def jar(group: str | None, name: str, version: str | None, *, sha256: str) -> Component:
    """Return a component. Where the group is not known, it has no package URL that a scanner could mistake."""
    url = None if group is None else PackageURL("maven", group, name, version)
    hashes = [HashType(alg=HashAlgorithm.SHA_256, content=sha256)]
    reference = f"{group or 'jar'}:{name}:{version}"
    return Component(
        name=name, group=group, version=version, type=ComponentType.LIBRARY, purl=url, hashes=hashes, bom_ref=reference
    )  # fmt: skip


def main() -> None:
    """Write the bills; end with an error for one that the schema refuses."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--spark-jars", type=Path, required=True)
    parser.add_argument("--output", type=Path, default=ROOT / "build")
    options = parser.parse_args()
    options.output.mkdir(exist_ok=True)
    for service in SERVICES:
        text = make_outputter(bill(service, options.spark_jars), OutputFormat.JSON, SCHEMA).output_as_string(
            indent=2
        )
        refused = JsonStrictValidator(SCHEMA).validate_str(text)
        if refused is not None:
            sys.exit(f"the bill of the {service} is not valid CycloneDX {SCHEMA.to_version()}: {refused}")
        file = options.output / f"sbom-{service}.json"
        file.write_text(text + "\n", "utf-8")
        print(f"{file}: {text.count('bom-ref')} components")


if __name__ == "__main__":
    main()

"""The archive of classes: its name says for which Java and which Spark it is, and a start does without one."""

import os
from pathlib import Path

import pyspark
import pytest

from spark_job.spark import class_archive


@pytest.fixture
def spark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A Spark with one jar, a Java beside it, and an empty cache; the jar."""
    jar = tmp_path / "pyspark" / "jars" / "spark-core.jar"
    java = tmp_path / "jdk" / "bin" / "java"
    for file in (jar, java, tmp_path / "jdk" / "release"):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("1")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(pyspark, "__file__", str(jar.parents[1] / "__init__.py"))
    return jar


def java_beside(spark: Path) -> str:
    return str(spark.parents[2] / "jdk" / "bin" / "java")


def test_without_an_archive_the_jvm_is_given_nothing(spark: Path) -> None:
    assert class_archive.options(java_beside(spark)) == []


def test_a_java_whose_release_is_no_utf_8_has_an_archive_of_its_own(spark: Path) -> None:
    release = spark.parents[2] / "jdk" / "release"
    usual = class_archive.archive(java_beside(spark))
    release.write_bytes(b'IMPLEMENTOR="caf\xe9"')
    assert class_archive.archive(java_beside(spark)) != usual


def test_an_archive_that_is_there_is_used(spark: Path) -> None:
    path = class_archive.archive(java_beside(spark))
    path.parent.mkdir(parents=True)
    path.touch()
    assert class_archive.options(java_beside(spark))[0] == f"-XX:SharedArchiveFile={path}"


def test_an_archive_that_others_may_have_written_is_not_loaded(
    spark: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = class_archive.archive(java_beside(spark))
    path.parent.mkdir(parents=True)
    path.touch()
    for each in (path, path.parent):
        each.chmod(0o777)
        assert class_archive.options(java_beside(spark)) == []
        each.chmod(0o755)
    assert class_archive.options(java_beside(spark)) != []
    monkeypatch.setattr(os, "geteuid", lambda: 4_711)
    if os.getuid() == 0:
        os.chown(path, 4_712, 4_712)
    assert class_archive.options(java_beside(spark)) == []


def test_another_spark_or_java_has_another_archive(spark: Path) -> None:
    names = {class_archive.archive(java_beside(spark))}
    os.utime(spark, (1, 1))
    names.add(class_archive.archive(java_beside(spark)))
    spark.write_text("another")
    names.add(class_archive.archive(java_beside(spark)))
    spark.with_name("more.jar").touch()
    names.add(class_archive.archive(java_beside(spark)))
    (spark.parents[2] / "jdk" / "release").write_text("2")
    names.add(class_archive.archive(java_beside(spark)))
    assert len(names) == 5

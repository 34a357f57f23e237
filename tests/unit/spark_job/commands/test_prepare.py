"""`spark-job prepare` does each of its parts, whatever is there of the others."""

from pathlib import Path

import pytest

from spark_job.commands.prepare import prepare


def test_the_jars_of_a_new_release_are_downloaded_although_the_archive_of_classes_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive = tmp_path / "classes.jsa"
    archive.touch()
    asked: list[str] = []

    def jars() -> list[Path]:
        asked.append("jars")
        return []

    monkeypatch.setattr("spark_job.spark.jars.java_executable", lambda: "/nowhere/bin/java")
    monkeypatch.setattr("spark_job.spark.jars.spark_connector_jars", jars)
    monkeypatch.setattr("spark_job.spark.class_archive.archive", lambda _java: archive)
    prepare()
    assert asked == ["jars"]

"""The peers of the benchmark: when their outputs are exact, which checkpoint Flink continues from, what is built again."""

import os
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from benchmarks.peers import flink_job, java
from benchmarks.peers.outputs import Output, judge, output
from benchmarks.transforms import OUTPUTS, twenty
from spark_job import Session
from spark_job.spark.jars import java_executable

ENDS = {b"s-1": 1_795_000_000_123, b"s-2": 1_795_000_000_456}


VALUE = output(ENDS[b"s-1"], 0)


def outputs() -> list[Output]:
    return [(key, output(at_ms, number)) for key, at_ms in ENDS.items() for number in range(OUTPUTS)]


def test_the_outputs_that_are_expected_are_those_of_the_transform() -> None:
    ended_at = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=ENDS[b"s-1"])
    session = cast(Session, SimpleNamespace(ended_at=ended_at))
    assert [each.value for each in twenty(session)] == [value for key, value in outputs() if key == b"s-1"]


def test_outputs_that_are_each_there_once_are_exact_in_any_order() -> None:
    verdict = judge(ENDS, reversed(outputs()))
    assert verdict.is_exact
    assert (verdict.expected, verdict.found) == (40, 40)


def test_a_missing_output_is_found_and_named() -> None:
    verdict = judge(ENDS, outputs()[:-1])
    assert not verdict.is_exact
    assert not verdict.has_all
    assert (verdict.missing, verdict.doubled, verdict.strange) == (1, 0, 0)
    assert verdict.example == outputs()[-1]


def test_a_doubled_output_is_found() -> None:
    verdict = judge(ENDS, [*outputs(), outputs()[3]])
    assert not verdict.is_exact
    assert verdict.has_all
    assert (verdict.missing, verdict.doubled, verdict.strange) == (0, 1, 0)
    assert verdict.example == outputs()[3]


@pytest.mark.parametrize(
    "altered",
    [
        pytest.param((b"s-2", outputs()[0][1]), id="another session's value"),
        pytest.param((b"s-3", outputs()[0][1]), id="a key that nobody sent"),
        pytest.param((None, outputs()[0][1]), id="no key"),
        pytest.param((b"s-1", None), id="no value"),
        pytest.param((b"s-1", VALUE + b"x"), id="longer"),
        pytest.param((b"s-1", VALUE[:-1] + b"y"), id="another last byte"),
        pytest.param((b"s-1", output(ENDS[b"s-1"] + 1, 0)), id="another time"),
        pytest.param((b"s-1", output(ENDS[b"s-1"], OUTPUTS)), id="a twenty-first"),
        pytest.param((b"s-1", b"short"), id="short"),
    ],
)
def test_an_altered_output_is_strange_and_leaves_another_missing(altered: Output) -> None:
    verdict = judge(ENDS, [altered, *outputs()[1:]])
    assert not verdict.is_exact
    assert (verdict.missing, verdict.doubled, verdict.strange) == (1, 0, 1)
    assert verdict.example == altered


def test_the_newest_complete_checkpoint_of_all_lives_is_continued_from(tmp_path: Path) -> None:
    for number, place in enumerate(["first/chk-9", "second/chk-3", "second/chk-2"]):
        (tmp_path / place).mkdir(parents=True)
        meta = tmp_path / place / "_metadata"
        meta.touch()
        os.utime(meta, (1_000 + number % 2, 1_000 + number % 2))
    (tmp_path / "second" / "chk-4").mkdir()  # was under way when the job was killed
    assert flink_job.latest_checkpoint(tmp_path) == tmp_path / "second/chk-3"


def test_without_a_complete_checkpoint_there_is_nothing_to_continue_from(tmp_path: Path) -> None:
    (tmp_path / "first" / "chk-1").mkdir(parents=True)
    assert flink_job.latest_checkpoint(tmp_path) is None


def test_a_property_that_would_have_to_be_escaped_is_refused(tmp_path: Path) -> None:
    file = java.write_properties(tmp_path / "a.properties", {"job.topic": "in=1"})
    assert file.read_text() == "job.topic=in=1\n"
    with pytest.raises(ValueError, match="escaped"):
        java.write_properties(tmp_path / "b.properties", {"job.topic": "a\nb"})


def _project(folder: Path) -> Path:
    project = folder / "sessions"
    (project / "src").mkdir(parents=True)
    (project / "pom.xml").write_text("<project/>")
    (project / "src" / "A.java").write_text("class A {}")
    return project


def _maven(folder: Path, body: str) -> Path:
    executable = folder / "bin" / "mvn"
    executable.parent.mkdir()
    executable.write_text(f"#!/bin/sh\n{body}\n")
    executable.chmod(0o755)
    return executable.parent


def test_only_what_changed_is_built_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    project, calls = _project(tmp_path), tmp_path / "calls"
    body = f"""
    for each in "$@"; do case "$each" in
      compile|dependency:*) echo "$each" >> {calls};;
      -Dbuild.folder=*) mkdir -p "${{each#*=}}/classes";;
      -DoutputDirectory=*) mkdir -p "${{each#*=}}";;
    esac; done"""
    monkeypatch.setenv("PATH", f"{_maven(tmp_path, body)}:{os.environ['PATH']}")
    first = java.built(project, tmp_path / "cache")
    assert java.built(project, tmp_path / "cache") == first
    assert calls.read_text().split() == ["dependency:copy-dependencies", "compile"]
    (project / "src" / "A.java").write_text("class A { }")
    second = java.built(project, tmp_path / "cache")
    assert second.libraries == first.libraries
    assert second.classes != first.classes
    assert calls.read_text().split()[2:] == ["compile"]


def test_a_failed_build_says_what_maven_said_and_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = _project(tmp_path)
    monkeypatch.setenv("PATH", f"{_maven(tmp_path, 'echo no such artifact; exit 1')}:{os.environ['PATH']}")
    for _ in range(2):
        with pytest.raises(java.BuildError, match="no such artifact"):
            java.built(project, tmp_path / "cache")


def test_without_maven_the_error_says_how_to_get_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = java_executable()
    monkeypatch.setattr(java, "java_executable", lambda: found)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(java.BuildError, match="apt-get install maven"):
        java.built(_project(tmp_path), tmp_path / "cache")

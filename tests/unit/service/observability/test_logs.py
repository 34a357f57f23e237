"""Log lines read from left to right: when, what, about which batch or lane, then the rest."""

import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import structlog

from service.observability import logs
from service.settings import LogSettings


@pytest.fixture(autouse=True)
def _defaults() -> Iterator[None]:
    yield
    structlog.reset_defaults()


def test_json_begins_with_what_a_reader_looks_for_first(capsys: pytest.CaptureFixture[str]) -> None:
    logs.configure(LogSettings(format="json"))
    structlog.get_logger().info("batch_committed", sessions=3, commit_s=0.1, batch=12)
    line = capsys.readouterr().err
    assert list(json.loads(line)) == ["timestamp", "level", "event", "batch", "sessions", "commit_s"]


def test_text_keeps_the_order_of_the_call_behind_batch_and_lane(capsys: pytest.CaptureFixture[str]) -> None:
    logs.configure(LogSettings(format="text"))
    structlog.get_logger().warning("parked", reason="too_large", lane=2, batch_id=7, detail="x")
    line = capsys.readouterr().err
    assert line.split("Z ")[1].split() == [
        "[warning]",
        "parked",
        "batch_id=7",
        "lane=2",
        "reason=too_large",
        "detail=x",
    ]


def test_every_line_says_whose_run_it_is_until_there_is_another(capsys: pytest.CaptureFixture[str]) -> None:
    logs.configure(LogSettings(format="json"))
    logs.identify(run="r1", generation=3)
    structlog.get_logger().info("batch_committed", batch=12)
    logs.identify(run="r2", generation=None)
    structlog.get_logger().info("batch_committed", batch=13)
    logs.identify(run=None)
    structlog.get_logger().info("job_stopped", run="given")
    first, second, third = (json.loads(line) for line in capsys.readouterr().err.splitlines())
    assert (first["batch"], first["run"], first["generation"]) == (12, "r1", 3)
    assert (second["run"], "generation" in second) == ("r2", False)
    assert third["run"] == "given"


@pytest.mark.parametrize("form", ["text", "json"])
def test_a_full_batch_fits_into_a_line_of_two_hundred(form: str, capsys: pytest.CaptureFixture[str]) -> None:
    logs.configure(LogSettings.model_validate({"format": form}))
    structlog.get_logger().info(
        "batch_committed", batch=1_234_567, events=500_000, sessions=100_000, outputs=1_000_000, dead_letters=1_000,
        commit_s=10.123,
    )  # fmt: skip
    assert len(capsys.readouterr().err.rstrip()) <= 200


def test_no_exception_s_message_looks_like_a_line_of_the_log(capsys: pytest.CaptureFixture[str]) -> None:
    logs.configure(LogSettings(format="text"))
    forged = "2026-01-01T00:00:00Z [info] console_login client=192.0.2.1"
    try:
        raise ValueError(f"a key\n{forged}")
    except ValueError as error:
        structlog.get_logger().error("thread_failed", thread="x", because=f"a\n{forged}", exc_info=error)
    first, *rest = capsys.readouterr().err.splitlines()
    assert "thread_failed" in first
    assert any(forged in line for line in rest)
    assert all(line.startswith("    ") for line in rest)


@contextmanager
def stderr_is(descriptor: int) -> Iterator[None]:
    """Let the process' stderr lead there."""
    kept, before = os.dup(2), sys.stderr
    try:
        os.dup2(descriptor, 2)
        with open(2, "w", closefd=False) as sys.stderr:
            yield
    finally:
        sys.stderr = before
        os.dup2(kept, 2)
        os.close(kept)


def lines_in_time(count: int) -> None:
    """Write so many lines; each is longer than what a pipe takes at once."""
    for number in range(count):
        structlog.get_logger().info("line", number=number, text="x" * 10_000)


def test_a_full_disk_costs_lines_and_nothing_else() -> None:
    with open("/dev/full", "wb") as full, stderr_is(full.fileno()):
        logs.configure(LogSettings(format="json"))
        lines_in_time(3)


@pytest.mark.parametrize("is_closed", [True, False], ids=["nobody is there", "nobody reads"])
def test_a_pipe_that_nobody_reads_costs_lines_and_the_next_reader_learns_how_many(is_closed: bool) -> None:
    reading, writing = os.pipe()
    with open(writing, "wb"), open(reading, "rb") as read, stderr_is(writing):
        logs.configure(LogSettings(format="json"))
        if is_closed:
            read.close()
        lines_in_time(100)
        if not is_closed:
            os.set_blocking(reading, False)
            read.read()
            structlog.get_logger().info("again")
            again, lost = (json.loads(line) for line in read.read().splitlines()[-2:])
            assert (again["event"], lost["event"]) == ("again", "log_lines_lost")
            assert 90 < lost["lines"] < 100


def test_a_process_without_stderr_logs_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stderr", None)
    logs.configure(LogSettings())
    structlog.get_logger().info("line")


def test_a_value_that_cannot_be_shown_costs_its_line(capsys: pytest.CaptureFixture[str]) -> None:
    class Broken:
        def __repr__(self) -> str:
            raise RuntimeError("no text")

        __str__ = __repr__

    logs.configure(LogSettings(format="json"))
    structlog.get_logger().info("line", value=Broken())
    structlog.get_logger().info("next")
    assert [json.loads(line)["event"] for line in capsys.readouterr().err.splitlines()] == [
        "next",
        "log_lines_lost",
    ]

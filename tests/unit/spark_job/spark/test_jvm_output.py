"""What the JVM writes to stderr reaches the job's own, but for what every start says."""

import os
from pathlib import Path

from spark_job.spark import jvm

FLUSH = b"""  File "/x/pyspark.zip/pyspark/daemon.py", line 262, in manager
  File "/x/pyspark.zip/pyspark/daemon.py", line 95, in worker
"""
TRACEBACK = b"Traceback (most recent call last):\n"
CLOSED = b"BrokenPipeError: [Errno 32] Broken pipe\n"


def passed_on(tmp_path: Path, text: bytes) -> bytes:
    """What arrives of a text."""
    said = tmp_path / "said"
    reading, writing = os.pipe()
    with said.open("wb") as out:
        os.write(writing, text)
        os.close(writing)
        jvm.pass_on(reading, out.fileno())
    return said.read_bytes()


def test_workers_that_end_because_they_were_idle_are_not_reported(tmp_path: Path) -> None:
    one, two = TRACEBACK + FLUSH + CLOSED, TRACEBACK + TRACEBACK + FLUSH + FLUSH + CLOSED + CLOSED
    assert passed_on(tmp_path, b"before\n" + one + two + b"after\n") == b"before\nafter\n"


def test_every_other_traceback_is(tmp_path: Path) -> None:
    other = TRACEBACK + FLUSH + b'  File "transform.py", line 1, in f\n' + CLOSED
    unfinished = TRACEBACK + FLUSH
    assert passed_on(tmp_path, other + b"between\n" + unfinished) == other + b"between\n" + unfinished


def test_everything_but_the_noise_is_passed_on(tmp_path: Path) -> None:
    noise = b"Picked up JAVA_TOOL_OPTIONS: -Xint\nWARNING: Using incubator modules: jdk.incubator.vector\n"
    rest = b"WARNING: something else\n2026-01-01 spark ERROR X: it failed\nno line feed"
    assert passed_on(tmp_path, noise + rest) == rest


def test_what_a_terminal_acts_on_arrives_as_an_escape(tmp_path: Path) -> None:
    said = "\ta key \x1b]0;x\x07 \u202e é\r\n".encode() + b"\xff\n"
    assert passed_on(tmp_path, said) == "\ta key \\x1b]0;x\\x07 \\u202e é\\r\n\\xff\n".encode()


def test_a_full_disk_of_the_log_does_not_end_what_the_jvm_says_later(tmp_path: Path) -> None:
    said = tmp_path / "said"
    reading, writing = os.pipe()
    os.write(writing, b"lost\n" * 3)
    os.close(writing)
    with Path("/dev/full").open("wb") as full:
        jvm.pass_on(reading, full.fileno())
    assert passed_on(tmp_path, b"heard\n") == b"heard\n"
    assert said.read_bytes() == b"heard\n"

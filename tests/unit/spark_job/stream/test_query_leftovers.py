"""Releasing the leftovers of a query never fails a run."""

from types import SimpleNamespace
from typing import Any

import pytest
from py4j.protocol import Py4JJavaError, Py4JNetworkError
from pyspark import SparkContext
from structlog.testing import capture_logs

from spark_job.stream.query_leftovers import release_leftovers


class OtherNamesError(Py4JJavaError):  # type: ignore[misc]  # py4j has no types
    """What reflection raises where a field is not found."""

    def __init__(self) -> None:
        self.java_exception = "java.lang.NoSuchFieldException: consumerPool"


@pytest.mark.parametrize(
    ("failure", "logged"),
    [
        (Py4JNetworkError("gone"), []),
        (ConnectionRefusedError(), []),
        (OtherNamesError(), ["query_remains"]),
    ],
)
def test_a_jvm_that_is_gone_keeps_nothing_and_one_of_another_version_is_told(
    monkeypatch: pytest.MonkeyPatch, failure: Exception, logged: list[str]
) -> None:
    def call() -> None:
        raise failure

    gateway = SimpleNamespace(java_gateway_server=SimpleNamespace(getCallbackClient=call))
    monkeypatch.setattr(SparkContext, "_gateway", gateway)
    session: Any = SimpleNamespace(sparkContext=SimpleNamespace(master="local[1]"))
    with capture_logs() as logs:
        release_leftovers(session)
    assert [line["event"] for line in logs] == logged

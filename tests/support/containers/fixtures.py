"""The fixtures that give containers, and what is said where no engine can be had.

Whoever asked for containers (CI, the make targets) gets an error. In a person's own run of pytest the tests concerned are
reported as NOT RUN, in a block of their own at the end of the run.
"""

import os
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from typing import TYPE_CHECKING, NoReturn

import pytest
from _pytest.terminal import TerminalReporter

from tests.support.engine import stand_ins
from tests.support.engine.debian.system import compose_plugin
from tests.support.engine.engine import Engine, engine_cache, open_engine
from tests.support.engine.errors import EngineError
from tests.support.engine.owner import remove_leftovers
from tests.support.engine.stand_ins import KAFKA, POSTGRES, PYTHON
from tests.support.engine.terminal import line_writer
from tests.support.servers.choice import containers_are_wanted


def _provide_compose(engine: Engine) -> None:
    """See to it that `engine.run("compose", ...)` works. Raises EngineError where Compose cannot be had."""
    if engine.run("compose", "version", check=False).returncode == 0:
        return
    engine.environment["DOCKER_CONFIG"] = str(compose_plugin(engine_cache()))
    engine.run("compose", "version")


if TYPE_CHECKING:
    from devstack.databases import PostgresServer
    from devstack.kafka import KafkaServer

NOT_RUN = "NOT RUN, because no containers can be had: "


@pytest.fixture(scope="session")
def engine(request: pytest.FixtureRequest) -> Iterator[Engine]:
    """A container engine without images, for the whole run."""
    with ExitStack() as until_the_end:
        try:
            found = until_the_end.enter_context(open_engine(say=line_writer(request)))
            remove_leftovers(found)
        except EngineError as error:
            cannot(error)
        yield found


@pytest.fixture(scope="session")
def server_engine(engine: Engine) -> Engine:
    """The engine with postgres:18 and apache/kafka:4.2.1."""
    try:
        stand_ins.provide(engine, (POSTGRES, KAFKA))
    except EngineError as error:
        cannot(error)
    return engine


@pytest.fixture(scope="session")
def container_postgres(server_engine: Engine) -> Iterator["PostgresServer"]:
    """A Postgres in a container, for the whole run."""
    from tests.support.containers.postgres import ContainerPostgres

    server = ContainerPostgres(server_engine)
    server.start()
    yield server
    server.destroy()


@pytest.fixture(scope="session")
def container_kafka(server_engine: Engine) -> Iterator["KafkaServer"]:
    """A Kafka in a container, for the whole run."""
    from tests.support.containers.kafka import ContainerKafka

    server = ContainerKafka(server_engine)
    server.start()
    yield server
    server.destroy()


@pytest.fixture(scope="session")
def compose_engine(engine: Engine) -> Engine:
    """The engine with Compose v2 and all base images, for a driven `docker compose up`."""
    try:
        _provide_compose(engine)
        stand_ins.provide(engine, (PYTHON, POSTGRES, KAFKA))
    except EngineError as error:
        cannot(error)
    return engine


def cannot(error: EngineError) -> NoReturn:
    """End the test: an error where containers are a must, else NOT RUN."""
    if containers_are_a_must(os.environ):
        raise error
    pytest.skip(NOT_RUN + str(error))


def containers_are_a_must(environment: Mapping[str, str]) -> bool:
    """Whether a run without containers must fail: in CI, and where they were asked for by OUTBOX_TEST_SERVERS."""
    is_ci = environment.get("CI", "").lower() not in ("", "0", "false", "no")
    return is_ci or containers_are_wanted(environment)


def pytest_terminal_summary(terminalreporter: TerminalReporter) -> None:
    """Name the tests that were not run, and why, above pytest's own last line."""
    not_run: dict[str, list[str]] = {}
    for report in terminalreporter.stats.get("skipped", []):
        _, _, reason = report.longrepr
        _, marked, why = reason.partition(NOT_RUN)
        if marked:
            not_run.setdefault(why, []).append(report.nodeid)
    if not not_run:
        return
    terminalreporter.section("NOT RUN: no containers on this machine", sep="!", red=True, bold=True)
    for why, tests in not_run.items():
        for test in tests:
            terminalreporter.write_line(f"NOT RUN  {test}", red=True)
        terminalreporter.write_line(why)
    terminalreporter.write_line("With CI set in the environment this run would have failed.", bold=True)

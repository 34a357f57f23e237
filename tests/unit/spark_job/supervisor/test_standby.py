"""A standby is ready to continue in the owner's place only while it can be told who that is."""

import contextlib
import socket
import threading
from types import SimpleNamespace
from typing import Any
from uuid import uuid4

import pytest
from pydantic import SecretStr

from service.errors import WRONG_AT_THE_START, UnavailableError
from service.settings import JobSettings, PostgresSettings, Settings
from spark_job.monitoring.health import JobHealth
from spark_job.monitoring.readiness import judge
from spark_job.spark.lazy_session import LazySession
from spark_job.supervisor import standby as standby_module
from spark_job.supervisor.standby import Standby
from tests.support.waiting import wait_until


def test_a_standby_is_not_ready_while_postgres_is_away() -> None:
    stop, health = threading.Event(), JobHealth()
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))  # and nobody listens
        dsn = f"postgresql://127.0.0.1:{unused.getsockname()[1]}/outbox"
        settings = Settings.model_construct(
            postgres=PostgresSettings(dsn=SecretStr(dsn)), job=JobSettings(heartbeat_s=0.2)
        )
        standby = Standby(settings, LazySession(settings.job), stop, health)
        waiting = threading.Thread(target=standby.wait, args=((),))
        waiting.start()
        try:
            wait_until(lambda: health.snapshot().phase != "starting", "a word of the standby")
            verdict = judge(health.snapshot(), progress_s=60, owner_timeout_s=30)
        finally:
            stop.set()
            waiting.join()
    assert verdict.reasons == ["cannot find out which run owns the outbox: Postgres is unreachable"]


@pytest.mark.parametrize("wrong", WRONG_AT_THE_START)
def test_settings_that_are_wrong_at_the_start_end_a_standby_and_are_waited_for_later(
    monkeypatch: pytest.MonkeyPatch, wrong: type[UnavailableError]
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise wrong("no")

    monkeypatch.setattr(standby_module, "connect", refuse)
    stop = threading.Event()
    settings = Settings.model_construct(job=JobSettings(heartbeat_s=0.2), postgres=None)
    health = JobHealth()
    standby = Standby(settings, LazySession(settings.job), stop, health)
    with pytest.raises(wrong):
        standby.wait((uuid4(),))
    waiting = threading.Thread(target=standby.wait, args=((uuid4(), uuid4()),))
    waiting.start()
    try:
        wait_until(lambda: health.snapshot().phase != "starting", "a word of the standby")
    finally:
        stop.set()
        waiting.join()


class Spark:
    """In the place of the lazy session: its JVM dies as often as a test says."""

    def __init__(self) -> None:
        self.started = 0
        self.lives = False

    def get(self) -> object:
        if not self.lives:
            self.started += 1
            self.lives = True
        return self.started

    def is_sound(self) -> bool:
        return self.lives

    def renew(self) -> bool:
        return True


def test_a_standby_whose_jvm_dies_warms_up_another_one_before_it_is_needed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stop, spark = threading.Event(), Spark()
    warmed: list[object] = []
    owner = SimpleNamespace(run_id="another", pid=1, host="h", is_alive=lambda _: True)
    monkeypatch.setattr(standby_module, "connect", lambda *_, **__: contextlib.nullcontext())
    monkeypatch.setattr(standby_module, "require_current", lambda _: None)
    monkeypatch.setattr(standby_module, "read_owner", lambda _: owner)
    monkeypatch.setattr(standby_module, "warm_up", lambda session, _: warmed.append(session))
    monkeypatch.setattr(standby_module, "_POLL_S", 0.01)
    settings: Any = SimpleNamespace(postgres=None, job=JobSettings())
    lazy: Any = spark
    standby = Standby(settings, lazy, stop, JobHealth())
    waiting = threading.Thread(target=standby.wait, args=((),))
    waiting.start()
    try:
        for number in (1, 2, 3):
            wait_until(lambda: len(warmed) == number, "a warm Spark")  # noqa: B023
            spark.lives = False
    finally:
        stop.set()
        waiting.join()
    assert warmed[:3] == [1, 2, 3]

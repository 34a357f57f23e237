"""A standby is ready to continue in the owner's place only while it can be told who that is."""

import socket
import threading

from pydantic import SecretStr

from service.settings import JobSettings, PostgresSettings, Settings
from spark_job.monitoring.condition import Condition
from spark_job.monitoring.readiness import judge
from spark_job.spark.session import LazySession
from spark_job.standby import Standby
from tests.support.waiting import wait_until


def test_a_standby_is_not_ready_while_postgres_is_away() -> None:
    stop, condition = threading.Event(), Condition()
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))  # and nobody listens
        dsn = f"postgresql://127.0.0.1:{unused.getsockname()[1]}/outbox"
        settings = Settings.model_construct(
            postgres=PostgresSettings(dsn=SecretStr(dsn)), job=JobSettings(heartbeat_s=0.2)
        )
        standby = Standby(settings, LazySession(settings.job), stop, condition)
        waiting = threading.Thread(target=standby.wait, args=((),))
        waiting.start()
        try:
            wait_until(lambda: condition.seen().phase != "starting", "a word of the standby")
            verdict = judge(condition.seen(), progress_s=60, owner_timeout_s=30)
        finally:
            stop.set()
            waiting.join()
    assert verdict.reasons == ["nobody can be asked who owns the outbox: Postgres is away"]

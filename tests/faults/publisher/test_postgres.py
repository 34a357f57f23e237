"""A Postgres that dies, restarts or ends connections under a working publisher, alone or together with Kafka, changes no event."""

from collections.abc import Callable

import pytest

from db.migrate import upgrade
from devstack.postgres import Postgres
from devstack.processes.server import LocalServer
from service.lifecycle.fault_points import Action, Fault
from tests.support.faults.matrix import Matrix
from tests.support.faults.publisher_cells import PublisherCell, run_cells
from tests.support.faults.publisher_scenario import PublisherScenario, SetUp
from tests.support.queries import query
from tests.support.servers.proxied_kafka import ProxiedKafka

_WORDS = {
    "delivery.after_read": "rows are read",
    "transaction.before_commit": "all records are in Kafka, no commit",
    "transaction.after_commit": "committed in Kafka, not recorded",
    "delivery.after_check": "a lane is being opened",
}
_SITUATION = "a lane at work"


def _held(scenario: PublisherScenario, point: str) -> None:
    reopened = [Fault("transaction.before_flush", Action.RAISE)] if point == "delivery.after_check" else []
    scenario.meet(*reopened, Fault(point, Action.HOLD, 1 if reopened else 3), batches=3)


def away(point: str, server: Postgres, action: str, end: Callable[[], None]) -> PublisherCell:
    """Postgres ends while a lane stands at the point, the lane continues without it, and it comes back."""

    def strike(scenario: PublisherScenario) -> str:
        _held(scenario, point)
        end()
        scenario.release()
        return "no Postgres"

    def recover(scenario: PublisherScenario) -> str:
        server.start()
        return scenario.recover()

    return PublisherCell(_SITUATION, "Postgres ends", action, strike, recover, detail=_WORDS[point])


def terminated(point: str) -> PublisherCell:
    """Every connection of the publisher is ended while a lane stands at the point."""

    def strike(scenario: PublisherScenario) -> str:
        _held(scenario, point)
        ended = query(
            scenario.dsn,
            "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE application_name LIKE 'publisher%%'"
            " AND datname = current_database()",
        )
        assert len(ended) >= 2, "the lanes' connections and the one that listens"
        scenario.release()
        return f"{len(ended)} connections ended"

    return PublisherCell(_SITUATION, "connections end", "pg_terminate_backend", strike, detail=_WORDS[point])


def both(point: str, servers: tuple[LocalServer, LocalServer]) -> PublisherCell:
    """Both servers die at once and come back in this order."""

    def strike(scenario: PublisherScenario) -> str:
        _held(scenario, point)
        for server in servers:
            server.kill()
        scenario.release()
        return "no Postgres, no Kafka"

    def recover(scenario: PublisherScenario) -> str:
        for server in servers:
            server.start()
        return scenario.recover()

    order = " before ".join(server.name for server in servers)
    return PublisherCell(
        _SITUATION, f"both killed, {order} back", "SIGKILL", strike, recover, detail=_WORDS[point]
    )


@pytest.mark.guarantee(36)
@pytest.mark.faults
@pytest.mark.timeout(1_800)
def test_a_postgres_that_goes_away_alone_or_with_kafka_changes_no_event(
    set_up: SetUp,
    own_kafka: ProxiedKafka,
    own_postgres: Postgres,
    matrix: Matrix,
    tell: Callable[[str], None],
) -> None:
    dsn = own_postgres.create_database("test_outbox")
    upgrade(dsn)
    cells = [
        away("delivery.after_read", own_postgres, "SIGKILL", own_postgres.kill),
        away("transaction.before_commit", own_postgres, "SIGKILL", own_postgres.kill),
        away("transaction.after_commit", own_postgres, "SIGKILL", own_postgres.kill),
        away("delivery.after_check", own_postgres, "SIGKILL", own_postgres.kill),
        away("transaction.after_commit", own_postgres, "fast stop", own_postgres.stop),
        *(terminated(point) for point in _WORDS),
        both("transaction.before_commit", (own_kafka, own_postgres)),
        both("transaction.after_commit", (own_postgres, own_kafka)),
    ]
    scenario = set_up(dsn=dsn, bootstrap=own_kafka.bootstrap_servers)
    run_cells(matrix, "Postgres, and both servers", cells, scenario, tell)

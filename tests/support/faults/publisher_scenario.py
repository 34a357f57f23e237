"""An outbox, real publishers whose faults are planned, and a consumer that watches all the time; and the verdict on them."""

import signal
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import psycopg

from contract.progress import Progress
from devstack.topics import create_topics
from service.lifecycle.fault_points import Fault, FaultPlan
from tests.support.outbox.batches import Outbox, simple
from tests.support.outbox.deliveries import assert_exactly_once, drained
from tests.support.processes.publishers import publisher_service, settings_for
from tests.support.processes.service import Service
from tests.support.proxies.kafka_protocol import list_transactions
from tests.support.queries import query
from tests.support.reading import end_offsets, read_to_end
from tests.support.waiting import wait_until
from tests.support.watching import Watcher

KEYS = 12
EVENTS = 3
# Several transactions for each batch and lane, most of them ending between two rows of a batch.
TRANSACTION_SESSIONS = 2
# The proxies' slow links and a cluster's failovers take their time; so does a machine that does much else.
PATIENCE_S = 180.0
_ENDED = {"CompleteCommit", "CompleteAbort", "Empty"}
_PARTITIONS = 3


class PublisherScenario:
    """What the cells of a group share. Each continues from what the one before it left."""

    def __init__(
        self,
        dsn: str,
        bootstrap: str,
        topic: str,
        folder: Path,
        *,
        through: str = "",
        lanes: int = 2,
        **publisher: Any,
    ) -> None:
        """`bootstrap` is for the watcher, `through` for the publishers (as `bootstrap` unless given)."""
        folder.mkdir(exist_ok=True)
        create_topics(bootstrap, {topic: (_PARTITIONS, {})})
        self.dsn, self.bootstrap, self.folder = dsn, bootstrap, folder
        self.outbox = Outbox(dsn, topic, lanes)
        quick: dict[str, Any] = {"lease_s": 1.5, "transaction_sessions": TRANSACTION_SESSIONS}
        self.settings = settings_for(dsn, through or bootstrap, **(quick | publisher))
        self.plan = FaultPlan(folder / "faults.json")
        self.publisher = self.another({"OUTBOX_TESTING__FAULT_FILE": str(self.plan.file)})
        self.watcher = Watcher(bootstrap, topic, tolerant=True)
        self._started: list[Service] = [self.publisher]
        ((uuid,),) = query(dsn, "SELECT outbox_uuid FROM outbox.identity")
        self.progress_topic = f"{self.settings.publisher.progress_topic}-{uuid}"
        self._ids = f"{self.settings.publisher.transactional_id_prefix}-{uuid}-"
        self._fed = 0
        self._epoch = 1

    def another(self, environment: dict[str, str] | None = None) -> Service:
        """A second publisher of the same outbox, not started, without faults unless the environment says so."""
        quick_options = {"OUTBOX_KAFKA__OPTIONS": '{"reconnect.backoff.max.ms": 500}'}
        number = len(list(self.folder.glob("*.log")))
        log = self.folder / f"publisher-{number}.log"
        log.touch()
        made = publisher_service(self.settings, log, quick_options | (environment or {}))
        if number:
            self._started.append(made)
        return made

    def transactional_id(self, lane: int) -> str:
        """Of a lane in the newest epoch."""
        return f"{self._ids}{self._epoch}-{lane}"

    def feed(self, batches: int = 2) -> None:
        """Commit batches to the outbox."""
        for _ in range(batches):
            self._fed += 1
            self.outbox.batch(simple(self._fed, KEYS, EVENTS))

    def new_epoch(self) -> None:
        """Let the next batch begin a new epoch: lanes that have never started."""
        self._epoch += 1
        self.outbox.add_epoch(self._epoch, self._fed + 1, self.outbox.lanes)

    def start(self) -> None:
        """Start the publisher unless it runs."""
        if not self.publisher.is_alive():
            self.publisher.start()

    def kill_at(self, *faults: Fault, batches: int = 2) -> None:
        """Let the publisher die at the last of these points, with work in hand. Fails unless exactly these fired, in one life."""
        self.meet(*faults, batches=batches)
        assert self.publisher.wait() == -signal.SIGKILL, self.publisher.log()[-2_000:]
        wait_until(lambda: not self._backends(), "the end of a dead publisher's connections")

    def meet(self, *faults: Fault, batches: int = 2) -> None:
        """Let the publisher reach these points, with work in hand. Fails unless exactly these fired, in one life."""
        fired = self.plan.fired()
        self.plan.write(*faults)
        self.start()
        pid = self.publisher.pid
        self.feed(batches)
        self.wait_until(lambda: not self.plan.pending(), lambda: f"the faults {self.plan.pending()}")
        assert self.plan.fired() == [*fired, *((fault, pid) for fault in faults)]

    def release(self) -> None:
        """Let what stands still at a point continue, without further faults."""
        self.plan.write()

    def recover(self) -> str:
        """Let the publisher continue without faults until all is delivered, and judge everything; return what it did, for the table."""
        before = self.transactions()
        self.plan.write()
        self.start()
        return self.judge(before)

    def judge(self, before: int = 0) -> str:
        """Wait until all is delivered; fail unless it was delivered once, and nothing of a dead process is left."""
        self.wait_until_drained()
        assert_exactly_once(self.outbox, self.watcher)
        self._assert_no_open_transaction()
        self._assert_history()
        self._assert_leases()
        return f"{self.transactions() - before} transactions more, {len(self.watcher.seen)} events once"

    def wait_until_drained(self) -> None:
        """Return once every lane is at the ledger's end. Fails when no publisher runs."""
        self.wait_until(self._is_drained, "delivery")

    def wait_until_moving(self) -> None:
        """Return once another transaction is recorded."""
        before = self.transactions()
        self.wait_until(lambda: self.transactions() > before, "a transaction")

    def wait_until(self, condition: Callable[[], object], what: str | Callable[[], str]) -> None:
        """Return once `condition` holds; fail with the log and the stacks of every publisher when it does not."""

        def explanation() -> str:
            said = what if isinstance(what, str) else what()
            return "\n".join([said, *(each.post_mortem() for each in self._started)])

        wait_until(condition, explanation, PATIENCE_S)

    def ahead(self) -> int:
        """How many lanes have one transaction more in Kafka than in Postgres. Fails where it is another difference."""
        mirrors = {
            (epoch, lane): seq
            for epoch, lane, seq in query(self.dsn, "SELECT epoch, lane, seq FROM outbox.lane")
        }
        differences = Counter(record.seq - mirrors[key] for key, record in self.committed().items())
        assert set(differences) <= {0, 1}, differences
        return differences[1]

    def open_transactions(self) -> bool:
        """Whether an output partition has records of a transaction that has not ended."""
        return self._has_open_transactions(self.outbox.topic)

    def states(self) -> set[str]:
        """Of this outbox's transactional ids, by the brokers' own word."""
        return {
            each.state
            for each in list_transactions(self.bootstrap)
            if each.transactional_id.startswith(self._ids)
        }

    def found(self) -> str:
        """For the table: how Kafka and Postgres stand to each other."""
        ahead = self.ahead()
        parts = [
            f"{ahead} lane{'s' * (ahead != 1)} ahead of Postgres" if ahead else "Postgres knows all commits"
        ]
        parts += ["events of an open transaction"] if self.open_transactions() else []
        return ", ".join(parts)

    def committed(self) -> dict[tuple[int, int], Progress]:
        """The newest committed progress record of each (epoch, lane)."""
        records = (
            Progress.decode(each.value() or b"") for each in read_to_end(self.bootstrap, self.progress_topic)
        )
        return {(record.epoch, record.lane): record for record in records}

    def _is_drained(self) -> bool:
        running = [each for each in self._started if each.is_alive()]
        assert running, f"no publisher runs: {self.publisher.tail()}"
        try:
            return drained(self.dsn)
        except psycopg.OperationalError:
            return False

    def transactions(self) -> int:
        try:
            ((count,),) = query(self.dsn, "SELECT count(*) FROM outbox.delivery")
        except psycopg.OperationalError:
            return 0
        return int(count)

    def _has_open_transactions(self, topic: str) -> bool:
        readable, written = (end_offsets(self.bootstrap, [topic], committed=each) for each in (True, False))
        return readable != written

    def _assert_no_open_transaction(self) -> None:
        """By the ends of the progress partitions (the outputs' are compared by assert_exactly_once), and by the brokers' own word."""
        self.wait_until(
            lambda: not self._has_open_transactions(self.progress_topic),
            "the end of every transaction on the progress topic",
        )
        self.wait_until(
            lambda: self.states() <= _ENDED, lambda: f"the end of every transaction, found {self.states()}"
        )

    def _assert_history(self) -> None:
        """Deliveries follow each other without a gap, and Kafka, the mirror and the newest delivery say the same of each lane."""
        deliveries: dict[tuple[int, int], tuple[Any, ...]] = {}
        rows = query(
            self.dsn,
            "SELECT epoch, lane, seq, after_batch, after_key, to_batch, to_key FROM outbox.delivery ORDER BY epoch, lane, seq",
        )
        for epoch, lane, seq, *place in rows:
            last = deliveries.get((epoch, lane))
            assert seq == (1 if last is None else last[0] + 1), f"lane {epoch}/{lane}: {seq} after {last}"
            assert last is None or tuple(place[:2]) == last[1:], (
                f"lane {epoch}/{lane}: {seq} does not begin where {last} ended"
            )
            deliveries[epoch, lane] = (seq, *place[2:])
        kafka = {
            key: (each.seq, each.cursor.batch_id, each.cursor.session_key)
            for key, each in self.committed().items()
        }
        mirror = {
            (epoch, lane): tuple(rest)
            for epoch, lane, *rest in query(
                self.dsn, "SELECT epoch, lane, seq, cursor_batch, cursor_key FROM outbox.lane WHERE seq > 0"
            )
        }
        assert deliveries == mirror == kafka

    def _assert_leases(self) -> None:
        """Only processes that run hold leases and connections."""
        alive = {each.pid for each in self._started if each.is_alive()}
        self.wait_until(
            lambda: self._lease_holders() <= alive,
            lambda: f"leases only of {alive}, found {self._lease_holders()}",
        )
        # A lane that looks for work has a transaction open for a moment.
        self.wait_until(lambda: not self._blocked(), lambda: f"the end of {self._blocked()}")

    def _lease_holders(self) -> set[int | None]:
        """Their pids."""
        rows = query(
            self.dsn,
            "SELECT p.pid FROM outbox.lane l LEFT JOIN outbox.publisher_process p ON p.process_id::text = l.lease_holder"
            " WHERE l.lease_holder IS NOT NULL",
        )
        return {pid for (pid,) in rows}

    def _blocked(self) -> list[Any]:
        return query(
            self.dsn,
            "SELECT pid, state, query FROM pg_stat_activity WHERE application_name LIKE 'publisher%%'"
            " AND datname = current_database() AND (state LIKE 'idle in transaction%%' OR wait_event_type = 'Lock')",
        )

    def _backends(self) -> list[Any]:
        return query(
            self.dsn,
            "SELECT pid FROM pg_stat_activity WHERE application_name LIKE 'publisher%%' AND datname = current_database()",
        )

    def __enter__(self) -> Self:
        self.watcher.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for each in self._started:
            if each.is_alive():
                each.kill()
        self.watcher.__exit__(kind, error, trace)


SetUp = Callable[..., PublisherScenario]
"""Makes a test's scenario, on the run's servers unless told otherwise."""

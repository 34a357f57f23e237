"""What the soak does to the stand: one fault after the other, drawn by a seed."""

import random
import shutil
import time
from collections.abc import Callable
from contextlib import suppress

import psutil

from devstack.processes.errors import DevstackError
from tests.soak.stand import Stand, as_json
from tests.support.processes.service import Service
from tests.support.waiting import LONG_DEADLINE_S, wait_until

Fault = Callable[["Faults"], None]


class NotNowError(Exception):
    """There is nothing that this fault could hit at this moment."""


class Faults:
    """Draws and does them. Every method returns with the servers up and each service started."""

    def __init__(self, stand: Stand, seed: int, without: set[str]) -> None:
        self._stand = stand
        self._chance = random.Random(seed)
        self._faults = {name: weight for name, weight in WEIGHTS.items() if name not in without}
        self._to_come = self._chance.sample(list(self._faults), len(self._faults))
        self.chapter_began = time.monotonic()
        """Nothing younger is dropped by retention: the chapter's verdict reads it."""

    def one(self) -> str:
        """Do one fault; return its name. Each kind once, then by their weights: a short run has them all."""
        self._stand.supervise()
        if self._to_come:
            name = self._to_come.pop()
        else:
            (name,) = self._chance.choices(list(self._faults), list(self._faults.values()))
        try:
            getattr(self, name)()
        except NotNowError:
            return f"{name}: nothing to hit"
        self._stand.happened[TITLES[name]] += 1
        return name

    def pause_s(self) -> float:
        """Seconds until the next fault: from another one into the recovery to a quiet while."""
        return self._chance.choice([0.0, 1.0, 3.0, 6.0, 12.0]) + self._chance.random()

    def lets_it_move(self) -> bool:
        """Whether the next fault waits for a batch: a job that is killed at each start shows little."""
        return self._chance.random() < 0.4

    # The job

    def job_killed(self) -> None:
        job = self._stand.pipeline.job
        _kill(job)
        self._start_job()

    def job_machine_lost(self) -> None:
        job = self._stand.pipeline.job
        job.crash()
        self._start_job()

    def jvm_killed(self) -> None:
        try:
            self._stand.pipeline.job.started("java").kill()
        except (AssertionError, psutil.NoSuchProcess):  # it is between two
            raise NotNowError from None

    def cache_deleted(self) -> None:
        pipeline = self._stand.pipeline
        pipeline.job.crash()
        pipeline.lose_cache()
        self._start_job()

    def cache_damaged(self) -> None:
        """While the job runs; a file may be in use, or gone at this moment."""
        tables = [
            *self._stand.pipeline.cache.rglob("*.sessions"),
            *self._stand.pipeline.cache.rglob("*.segment"),
            *self._stand.pipeline.cache.rglob("*.events"),
        ]
        if not tables:
            raise NotNowError
        for table in self._chance.sample(tables, max(1, len(tables) // 2)):
            with suppress(OSError):
                content = table.read_bytes()
                damaged = table.with_name(".damaged")
                damaged.write_bytes(content[: len(content) // 2] + self._chance.randbytes(16))
                damaged.replace(table)

    def _start_job(self) -> None:
        # A killed JVM leaves 10 MB: gigabytes in two hours.
        for left in self._stand.pipeline.scratch.iterdir():
            shutil.rmtree(left, ignore_errors=True) if left.is_dir() else left.unlink()
        self._stand.pipeline.job.start()

    # The publishers

    def publisher_killed(self) -> None:
        relay = self._chance.choice(self._stand.targets)
        _kill(relay)
        relay.start()

    def publisher_frozen(self) -> None:
        """Longer than its lease now and then: another one takes its lanes, and it comes back as a zombie."""
        relay = self._chance.choice(self._stand.targets)
        try:
            relay.pause()
        except DevstackError:
            raise NotNowError from None
        time.sleep(self._chance.choice([0.5, 3.0, 8.0]))
        relay.resume()

    # The servers

    def postgres_killed(self) -> None:
        postgres = self._stand.postgres
        postgres.kill()
        time.sleep(self._chance.choice([0.0, 0.0, 2.0, 6.0]))
        postgres.start()
        self._reconnect()

    def kafka_killed(self) -> None:
        kafka = self._stand.kafka
        kafka.kill()
        time.sleep(self._chance.choice([0.0, 0.0, 3.0, 10.0]))
        kafka.start()

    def both_killed(self) -> None:
        first, second = self._chance.sample([self._stand.postgres, self._stand.kafka], 2)
        first.kill()
        second.kill()
        time.sleep(self._chance.choice([0.0, 3.0]))
        second.start()
        first.start()
        self._reconnect()

    # What operators do meanwhile

    def lanes_changed(self) -> None:
        ((lanes,),) = self._stand.pipeline.ask(
            "SELECT lanes FROM outbox.lane_epoch ORDER BY epoch DESC LIMIT 1"
        )
        others = [number for number in range(1, 7) if number != lanes]
        self._stand.run("lanes", "set", str(self._chance.choice(others)), "--yes", may_fail=True)

    def retention(self) -> None:
        """Drops what the verdicts so far have looked at."""
        # The command counts from when it looks, and on a busy machine it takes its time to start.
        keep_s = int(time.monotonic() - self.chapter_began) + 60
        output = self._stand.run(
            "retention", "run", "--yes", "--json", may_fail=True,
            OUTBOX_RETENTION__KEEP_S=str(keep_s), OUTBOX_RETENTION__KEEP_LEDGER_S="2592000", OUTBOX_RETENTION__LOCK_TIMEOUT_S="20",
        )  # fmt: skip
        if output is not None:
            dropped = as_json(output)["dropped"]
            assert isinstance(dropped, list)
            self._stand.happened["partitions dropped"] += len(dropped)

    def _reconnect(self) -> None:
        def connected() -> bool:
            try:
                self._stand.pipeline.connect()
            except Exception:  # noqa: BLE001 - it is still recovering
                return False
            return True

        wait_until(connected, "Postgres", LONG_DEADLINE_S, poll_s=0.2)


def _kill(service: Service) -> None:
    try:
        service.kill()
    except ProcessLookupError:
        service.wait(60)
        raise NotNowError from None


WEIGHTS = {
    "job_killed": 5,
    "job_machine_lost": 4,
    "jvm_killed": 4,
    "cache_deleted": 3,
    "cache_damaged": 3,
    "publisher_killed": 8,
    "publisher_frozen": 6,
    "postgres_killed": 5,
    "kafka_killed": 4,
    "both_killed": 2,
    "lanes_changed": 2,
    "retention": 4,
}
"""How often each is drawn."""

TITLES = {
    "job_killed": "job: SIGKILL",
    "job_machine_lost": "job: SIGKILL to all its processes at once",
    "jvm_killed": "job: SIGKILL to its JVM",
    "cache_deleted": "job: killed, its cache deleted",
    "cache_damaged": "job: its cache damaged",
    "publisher_killed": "publisher: SIGKILL",
    "publisher_frozen": "publisher: SIGSTOP, SIGCONT",
    "postgres_killed": "Postgres: SIGKILL",
    "kafka_killed": "Kafka: SIGKILL",
    "both_killed": "Postgres and Kafka: SIGKILL",
    "lanes_changed": "`publisher lanes set`",
    "retention": "`publisher retention run`",
}

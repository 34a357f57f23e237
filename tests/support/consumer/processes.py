"""Members of a group that run one at a time, each up to its next poll or to the records in its hand: any interleaving, reproducibly."""

import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import Any

from outbox_consumer.outputs import Output
from tests.support.consumer.effects import Database, DyingConnection, Killed, apply, member
from tests.support.consumer.group import Broker

Handler = Callable[[Any, Output], None]


class Process:
    """A member in a thread that runs only while somebody waits for it. `dies_at`: the step of its connection at which it is killed."""

    def __init__(
        self,
        broker: Broker,
        database: Database,
        handler: Handler = apply,
        dies_at: int = 10**9,
        *,
        after: bool = False,
    ) -> None:
        self._broker, self._database, self._handler = broker, database, handler
        self._dies_at, self._after = dies_at, after
        self._go, self._back = threading.Semaphore(0), threading.Semaphore(0)
        self._killed = False
        self.ended = False
        self.error: BaseException | None = None
        self.at = ""
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        self._back.acquire()

    def assign(self, topic: str, *partitions: int) -> None:
        """What the group gives it when it polls the next time. What it had is taken from the others, who learn of it as late."""
        self.consumer.wanted = {(topic, partition) for partition in partitions}
        for other in self._broker.members:
            if other is not self.consumer:
                other.wanted -= self.consumer.wanted

    def step(self) -> None:
        """Let it run to its next poll, or until it has fetched something."""
        if not self.ended:
            self._go.release()
            self._back.acquire()

    def run_until_fetched(self) -> None:
        """Let it run until it has records in hand."""
        self.step()
        while self.at != "fetched":
            assert not self.ended
            self.step()

    def run_until_idle(self) -> None:
        """Let it run until a poll gave nothing."""
        polls = self.consumer.empty_polls
        while self.consumer.empty_polls == polls and not self.ended:
            self.step()

    def kill(self) -> None:
        """End it where it is."""
        self._killed = True
        self.step()
        self._thread.join()

    def _run(self) -> None:
        with closing(self._database.connect()) as own:
            connection = DyingConnection(own, self._dies_at, after=self._after)
            try:
                loop = member(self._broker, connection, stop=lambda consumer: False)
                self.consumer = self._broker.members[-1]
                self.consumer.wanted = set()
                self.consumer.switch = self._switch
                for output in loop:
                    with output:
                        self._handler(connection, output)
            except Killed:
                pass
            except BaseException as error:  # noqa: BLE001  # looked at by the test
                self.error = error
        self.ended = True
        self._back.release()

    def _switch(self, step: str) -> None:
        self.at = step
        self._back.release()
        self._go.acquire()
        if self._killed:
            raise Killed


@contextmanager
def processes(broker: Broker, database: Database, count: int) -> Iterator[list[Process]]:
    """Some of them, killed at the end."""
    made = [Process(broker, database) for _ in range(count)]
    try:
        yield made
    finally:
        for each in made:
            each.kill()
    assert [each.error for each in made] == [None] * count

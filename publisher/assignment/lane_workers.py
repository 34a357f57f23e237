"""Starts a worker in its own thread for every lane that this process holds, and stops the workers of the lanes that it gives up."""

import threading
import time
from collections.abc import Iterable

import structlog

from publisher.delivery.context import Context
from publisher.lane.lane import Lane
from publisher.lane.transaction_pace import TransactionPace
from publisher.lane.worker import Worker
from publisher.monitoring.health import LaneHealth, ProcessHealth, longest_turn_s
from publisher.outbox.wakeup import Wakeup
from publisher.protocol.epochs import Epoch, LaneId

_log = structlog.get_logger()


class LaneWorkers:
    """Not thread-safe: used by the main loop only."""

    def __init__(
        self, context: Context, wakeup: Wakeup, changed: threading.Event, health: ProcessHealth
    ) -> None:
        """`changed` is set whenever a worker ends; `health` receives each worker's state."""
        self._context = context
        self._health = health
        self._wakeup = wakeup
        self._changed = changed
        self._pace = TransactionPace(context.settings.publisher.transactions_per_second)
        self._workers: dict[LaneId, Worker] = {}
        self._threads: dict[LaneId, threading.Thread] = {}

    def lanes(self) -> set[LaneId]:
        """Return the lanes with a worker, including the lanes that their workers are about to leave."""
        return set(self._workers)

    def start(self, epoch: Epoch, lanes: Iterable[int]) -> None:
        """Put a worker on each of these lanes that has none."""
        for lane in lanes:
            if (epoch.epoch, lane) not in self._workers:
                self._start(epoch, lane)

    def _start(self, epoch: Epoch, lane: int) -> None:
        context, health = self._context, LaneHealth(epoch.epoch, lane)
        wake, look = self._wakeup.subscribe(lane), self._wakeup.subscribe_publishers()
        worker = Worker(
            Lane(context, epoch, lane),
            health,
            wake=wake,
            look=look,
            pace=self._pace,
            poll_s=context.settings.publisher.poll_ms / 1000,
        )

        def run() -> None:
            # Every log line of this thread has its epoch and lane.
            structlog.contextvars.bind_contextvars(epoch=epoch.epoch, lane=lane)
            try:
                with self._health.loops.loop(
                    f"lane {epoch.epoch}/{lane}", longest_turn_s(context.settings)
                ) as loop:
                    health.loop = loop
                    worker.run(loop.turn)
            finally:
                self._health.worker_ended(health)
                self._wakeup.unsubscribe(wake)
                self._wakeup.unsubscribe(look)
                self._changed.set()

        # A daemon: a thread that waits for an unavailable Kafka must not delay the end of the process beyond its grace period.
        thread = threading.Thread(target=run, name=f"lane-{epoch.epoch}-{lane}", daemon=True)
        self._workers[epoch.epoch, lane], self._threads[epoch.epoch, lane] = worker, thread
        self._health.worker_started(health)
        thread.start()

    def leave(self, lanes: Iterable[LaneId]) -> None:
        """Tell the workers to give these lanes up at their next transaction boundary."""
        for lane in lanes:
            if lane in self._workers:
                self._workers[lane].leave()

    def raise_bug(self) -> None:
        """Raise the unexpected exception of the first worker that has one."""
        for worker in self._workers.values():
            if worker.bug is not None:
                raise worker.bug

    def reap(self) -> bool:
        """Forget the workers that have ended; return whether any of them had delivered its lane's whole epoch. Raises as `raise_bug`."""
        self.raise_bug()
        done = False
        for lane, thread in list(self._threads.items()):
            if not thread.is_alive():
                done |= self._workers[lane].done
                del self._workers[lane], self._threads[lane]
        return done

    def stopped(self, lanes: Iterable[LaneId]) -> list[str] | None:
        """Return why each of these lanes is stopped; None if one of them is not stopped, or if there are no lanes."""
        reasons: list[str] = []
        for lane in sorted(lanes):
            worker = self._workers.get(lane)
            if worker is None or worker.stopped is None:
                return None
            reasons.append(f"lane {lane[1]}: {worker.stopped}")
        return reasons or None

    def stopped_lanes(self, epoch: Epoch) -> set[int]:
        """Return this epoch's lanes that stay stopped until somebody acts: another process could not deliver them either."""
        return {
            lane
            for (number, lane), worker in self._workers.items()
            if number == epoch.epoch and worker.stopped is not None
        }

    def end(self, grace_s: float) -> list[LaneId]:
        """Tell every worker to give its lane up; return the lanes that were not given up within `grace_s`."""
        self.leave(self._workers)
        deadline = time.monotonic() + grace_s
        for thread in self._threads.values():
            thread.join(max(0.0, deadline - time.monotonic()))
        abandoned = [lane for lane, thread in sorted(self._threads.items()) if thread.is_alive()]
        for epoch, lane in abandoned:
            _log.warning("lane_abandoned", epoch=epoch, lane=lane, waited_s=grace_s)
        return abandoned

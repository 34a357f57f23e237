"""Waits until no transaction from before a lane's fencing is open on the partitions that the lane writes to.

`init_transactions` ends the transaction that the lane's last producer left open, by the coordinator's answer. Each partition learns of the
end by a marker, which brokers 4.3.0 to 4.4.0 may never write (KAFKA-20734, docs/kafka.md). The records of an aborted transaction then stay
open under the lane's producer id, and the lane's next commit on that partition commits them, too: consumers see them twice.

So before a tenure's first record to a topic, every transaction that is open on it must have ended, the lane's own or not: only the broker
could tell, and nothing that the lane writes behind an open one would be visible anyway.

Every offset of the tenure must be beyond the ends that are read then. One that is not shows that the topic was deleted and made again,
before a description of the topic does, which may be a minute old. An end below what this process has written is refused (written_ends.py),
so that an old leader's answer hides no open transaction.
"""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence

from publisher.kafka.topics import OutputTopic, Topics
from publisher.protocol.stop_reasons import StoppedError, StopReason

# Other lanes' transactions last for milliseconds. Longer ones are shown to the operator while the lane waits.
_WAIT_S = 5.0
_POLL_S = 0.05

_REMEDY = (
    "Each ends with its producer, at the latest after that one's transaction.timeout.ms; the lane then continues by itself. One that "
    "outlives it lost its end to a broker's defect and holds back every read_committed consumer: find it with `kafka-transactions.sh "
    "find-hanging`, end it with `kafka-transactions.sh abort --topic TOPIC --partition PARTITION --start-offset OFFSET`, then run "
    "`publisher audit --kafka` (docs/kafka.md)"
)


class OpenTransactions:
    """One lane's, or one replay's. Not thread-safe."""

    def __init__(self, topics: Topics, give_up: Callable[[], bool], wait_s: float = _WAIT_S) -> None:
        self._topics = topics
        self._give_up = give_up
        self._wait_s = wait_s
        self._awaited: dict[str, dict[int, int]] = {}
        """Topic -> partition -> its end when the topic was met: what is open below it must have ended."""
        self._written: set[str] = set()
        self._last: dict[str, dict[int, int]] = {}

    def begin(self) -> None:
        """Start over after another fencing: earlier transactions may still be open. If the lane only waited, it waits for the same ones."""
        for name in self._written:
            del self._awaited[name]
        self._written.clear()
        self._last.clear()

    def unmet(self, names: Iterable[str]) -> list[str]:
        """Return those of the topics that this tenure has not met: what is known of them must be newer than their ends."""
        return [name for name in names if name not in self._awaited]

    def meet(self, topics: Mapping[str, OutputTopic]) -> None:
        """Remember the ends of topics that are new in this tenure."""
        for name, topic in topics.items():
            self._awaited[name] = self._topics.ends(name, range(topic.partitions))

    def begun_anew(self, offsets: Mapping[str, Mapping[str, Sequence[int]]]) -> set[str]:
        """Return the topics of a committed transaction with offsets not above all earlier ones. `offsets`: as OffsetTally.as_json says."""
        found = set()
        for topic, partitions in offsets.items():
            ends, last = self._awaited.get(topic, {}), self._last.setdefault(topic, {})
            for partition, (first, newest) in partitions.items():
                number = int(partition)
                if first < ends.get(number, 0) or first <= last.get(number, -1):
                    found.add(topic)
                last[number] = newest
        return found

    def wait(self, topics: Mapping[str, OutputTopic]) -> None:
        """Return once every transaction has ended that was open on these topics when the lane first met them.

        Raises StoppedError, to be retried, when that takes long; KafkaException.
        """
        for name, topic in topics.items():
            if name in self._written:
                continue
            if name not in self._awaited:
                self.meet({name: topic})
            self._wait(name, self._awaited[name])
            self._written.add(name)

    def _wait(self, name: str, ends: dict[int, int]) -> None:
        deadline = time.monotonic() + self._wait_s
        while True:
            stable = self._topics.ends(name, ends, committed=True)
            still_open = {each: stable[each] for each in ends if stable[each] < ends[each]}
            if not still_open:
                return
            if self._give_up() or time.monotonic() > deadline:
                raise StoppedError(StopReason.OPEN_TRANSACTION, explanation(name, still_open), retry=True)
            time.sleep(_POLL_S)


def explanation(topic: str, still_open: Mapping[int, int]) -> str:
    """Say what is open and how it ends. `still_open`: partition -> offset of the first open transaction."""
    where = ", ".join(
        f"{topic}[{partition}] from offset {offset} on" for partition, offset in still_open.items()
    )
    return f"a transaction is open on {where}. {_REMEDY}"

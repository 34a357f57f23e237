"""Waits until no transaction from before a lane's fencing is open on the partitions that the lane writes to.

`init_transactions` returns when the coordinator has ended the transaction that the lane's last producer left open. Each partition learns of
the end from a marker, which brokers 4.3.0 to 4.4.0 may never write (KAFKA-20734, docs/kafka.md). The records of an aborted transaction then
stay open under the lane's producer id, and the lane's next commit on that partition commits them, too: consumers see them twice.

So before a tenure's first record to a topic, every transaction that is open there must have ended, whether it is the lane's own or not.
Only the broker can tell whose it is, and records that the lane writes after an open transaction would not be visible anyway.

The ends of the partitions are read at that moment, and every offset of the tenure must be beyond them. An offset that is not shows that the
topic was deleted and created again, even if the topic's description, which may be a minute old, does not show it yet. An end below the
offsets that this process has written is refused (written_ends.py), so that an old leader's answer hides no open transaction.
"""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence

from publisher.kafka.topics import OutputTopic, Topics
from publisher.protocol.stop_reasons import StoppedError, StopReason

# Transactions of other lanes take milliseconds. While the lane waits for a longer one, it reports that.
_WAIT_S = 5.0
_POLL_S = 0.05

_REMEDY = (
    "Each ends with its producer, at the latest after that one's transaction.timeout.ms; the lane then continues by itself. One that "
    "outlives it lost its end to a broker's defect and holds back every read_committed consumer: find it with `kafka-transactions.sh "
    "find-hanging`, end it with `kafka-transactions.sh abort --topic TOPIC --partition PARTITION --start-offset OFFSET`, then run "
    "`publisher audit --kafka` (docs/kafka.md)"
)


class OpenTransactions:
    """The waiting of one lane or one replay. Not thread-safe."""

    def __init__(self, topics: Topics, give_up: Callable[[], bool], wait_s: float = _WAIT_S) -> None:
        self._topics = topics
        self._give_up = give_up
        self._wait_s = wait_s
        self._awaited: dict[str, dict[int, int]] = {}
        """{topic: {partition: end when this tenure first met the topic}}. Transactions open below that end must have ended."""
        self._written: set[str] = set()
        self._last: dict[str, dict[int, int]] = {}

    def begin(self) -> None:
        """Start over after another fencing: earlier transactions may still be open. Topics for which the lane has only waited keep their
        ends."""
        for name in self._written:
            del self._awaited[name]
        self._written.clear()
        self._last.clear()

    def unmet(self, names: Iterable[str]) -> list[str]:
        """Return the topics that this tenure has not met yet. Their descriptions must be newer than their ends."""
        return [name for name in names if name not in self._awaited]

    def meet(self, topics: Mapping[str, OutputTopic]) -> None:
        """Remember the ends of topics that are new in this tenure."""
        for name, topic in topics.items():
            self._awaited[name] = self._topics.ends(name, range(topic.partitions))

    def begun_anew(self, offsets: Mapping[str, Mapping[str, Sequence[int]]]) -> set[str]:
        """Return the topics in which a committed transaction wrote an offset not above all earlier ones. `offsets`: as from
        OffsetTally.as_json."""
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
        """Wait until every transaction has ended that was open on these topics when the tenure first met them.

        Raises StoppedError, to be retried, if that takes too long; KafkaException.
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
    """Return which transactions are open and how they end. `still_open`: {partition: offset of its first open transaction}."""
    where = ", ".join(
        f"{topic}[{partition}] from offset {offset} on" for partition, offset in still_open.items()
    )
    return f"a transaction is open on {where}. {_REMEDY}"

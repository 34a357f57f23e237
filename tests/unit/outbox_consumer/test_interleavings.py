"""Whatever the order of polls, rebalances, kills, failures and copies: each revision of an output has its effect at most once, and the
greatest one has it."""

import tempfile
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from outbox_consumer.outputs import Output
from tests.support.consumer.effects import Database, apply
from tests.support.consumer.group import Broker, Record
from tests.support.consumer.processes import Process

PARTITIONS, MEMBERS = 2, 2

_partitions = st.integers(0, PARTITIONS - 1)
_members = st.integers(0, MEMBERS - 1)
_foreign = st.tuples(st.just("foreign"), _partitions)
_write = st.tuples(st.just("write"), _partitions, st.integers(0, 3), st.integers(0, 2), st.booleans())
_step = st.tuples(st.just("step"), _members)
_assign = st.tuples(st.just("assign"), _members, st.sets(_partitions, min_size=1))
_fetch = st.tuples(st.just("fetch"), _members)
_drain = st.tuples(st.just("drain"), _members)
_kill = st.tuples(st.just("kill"), _members)
_fail = st.tuples(st.just("fail"), st.integers(1, 2))
_dying = st.tuples(st.just("dying"), _members, st.integers(0, 30), st.booleans())
ACTIONS = st.lists(
    st.one_of(_step, _step, _step, _step, _write, _write, _foreign, _assign, _assign, _kill, _fail, _dying),
    max_size=80,
)


class Group:
    """The members, and what was written."""

    def __init__(self, folder: Path) -> None:
        self.broker = Broker(orders=PARTITIONS)
        self.database = Database(folder / "consumer.db")
        self.written: list[tuple[int, Record]] = []
        self.failures = 0
        self.members = [Process(self.broker, self.database, self._handle) for _ in range(MEMBERS)]

    def _handle(self, connection: Any, output: Output) -> None:
        apply(connection, output)
        if self.failures:
            self.failures -= 1
            raise RuntimeError("passes")

    def write(self, partition: int, session: int, revision: int, replay: bool) -> None:
        """An output, or one of its copies."""
        name = f"{len(self.written)}"
        self._append(partition, Record(name.encode(), f"T/0/{session}/0", revision, "r" if replay else None))

    def foreign(self, partition: int) -> None:
        """A record without an id."""
        self._append(partition, Record(f"{len(self.written)}".encode()))

    def _append(self, partition: int, record: Record) -> None:
        self.written.append((partition, record))
        self.broker.append("orders", partition, record)

    def step(self, which: int) -> None:
        self.members[which].step()

    def fetch(self, which: int) -> None:
        """Let it run until it has something in hand, if there is anything for it."""
        for _ in range(4):
            self.step(which)
            if self.members[which].at == "fetched":
                return

    def drain(self, which: int) -> None:
        self.members[which].run_until_idle()

    def assign(self, which: int, partitions: set[int]) -> None:
        self.members[which].assign("orders", *partitions)

    def kill(self, which: int) -> None:
        self.dying(which, 10**9, False)

    def fail(self, times: int) -> None:
        self.failures = times

    def dying(self, which: int, step: int, after: bool) -> None:
        """Another process in its place, which will be killed at a step of its connection."""
        self.members[which].kill()
        self.members[which] = Process(self.broker, self.database, self._handle, step, after=after)

    def finish(self) -> None:
        """All partitions to a new member that nothing kills."""
        self.failures = 0
        for each in self.members:
            each.kill()
            assert each.error is None
        last = Process(self.broker, self.database)
        last.assign("orders", *range(PARTITIONS))
        last.run_until_idle()
        last.run_until_idle()
        last.kill()
        assert last.error is None

    def check(self) -> None:
        """Compare the effects with what was written."""
        rows = self.database.query(
            'SELECT value, outbox_id, revision, partition, "offset" FROM effect ORDER BY number'
        )
        assert self.database.letters() == []
        names = [row[0].decode() for row in rows]
        assert len(names) == len(set(names)), "twice"
        done: dict[str, list[int]] = {}
        for _, outbox_id, revision, _, _ in rows:
            if outbox_id is not None:
                done.setdefault(outbox_id, []).append(revision)
        for revisions in done.values():
            assert revisions == sorted(set(revisions)), "a revision twice, or an older one after a newer one"
        sent: dict[str, int] = {}
        foreign = []
        for number, (_, record) in enumerate(self.written):
            if record.outbox_id is None:
                foreign.append(str(number))
            else:
                sent[record.outbox_id] = max(record.revision, sent.get(record.outbox_id, 0))
        assert {outbox_id: revisions[-1] for outbox_id, revisions in done.items()} == sent
        assert sorted(row[0].decode() for row in rows if row[1] is None) == sorted(foreign)
        for partition in range(PARTITIONS):
            offsets = [row[4] for row in rows if row[3] == partition]
            assert offsets == sorted(offsets), "not in the order of the partition"


@settings(max_examples=150)
@given(ACTIONS)
def test_any_interleaving_gives_each_effect_once(actions: list[tuple[Any, ...]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        group = Group(Path(folder))
        try:
            for name, *arguments in actions:
                getattr(group, name)(*arguments)
        finally:
            group.finish()
        group.check()

"""Members of one group: rebalances, and processes that wake up when others have gone on."""

from contextlib import closing

import pytest

from outbox_consumer.errors import PositionError
from tests.support.consumer.effects import Database, apply, consume_all, member
from tests.support.consumer.group import Broker, Record
from tests.support.consumer.processes import processes


def output(end: int) -> Record:
    """The one output of a session."""
    return Record(str(end).encode(), f"T/0/{end}/0")


@pytest.mark.parametrize("with_ids", [True, False])
def test_a_member_that_slept_with_records_in_hand_applies_none_that_others_have_consumed(
    broker: Broker, database: Database, with_ids: bool
) -> None:
    """Without ids, the position alone keeps it from that."""
    broker.append(
        "orders", 0, *(output(n) if with_ids else Record(str(n).encode()) for n in range(8)), marker=False
    )
    with closing(database.connect()) as zombie_connection:
        zombie = member(broker, zombie_connection)
        sleeper = broker.members[0]

        def sleep() -> None:
            """What happens between its fetch and its transaction."""
            sleeper.closed = True
            consume_all(broker, database)
            broker.append("orders", 0, output(8))
            sleeper.wanted, sleeper.lost = set(), True

        for each in zombie:
            apply(zombie_connection, each)
            if each.offset == 1:
                sleeper.after_fetch = sleep
    assert database.effects() == [str(n) for n in range(8)]
    assert database.positions()["orders", 0] == 8
    sleeper.closed = True
    consume_all(broker, database)
    assert database.effects() == [str(n) for n in range(9)]


def test_two_members_with_the_same_records_in_hand_apply_each_once_and_both_go_on(
    broker: Broker, database: Database
) -> None:
    with processes(broker, database, 2) as (elder, younger):
        elder.assign("orders", 0)
        elder.run_until_idle()
        broker.append("orders", 0, *(output(n) for n in range(4)))
        elder.run_until_fetched()
        # The elder is frozen now; its partition goes to the other one.
        younger.assign("orders", 0)
        younger.run_until_fetched()
        elder.run_until_idle()
        assert database.effects() == ["0"]
        younger.run_until_idle()
    assert database.effects() == ["0", "1", "2", "3"]


def test_the_groups_offsets_follow_the_position_and_decide_nothing(
    broker: Broker, database: Database
) -> None:
    broker.append("orders", 0, output(0), output(1))
    consume_all(broker, database)
    assert broker.members[0].committed == {("orders", 0): 2}
    assert database.positions() == {("orders", 0): 2, ("orders", 1): 0}


def test_a_position_that_is_set_back_under_the_loop_ends_it(broker: Broker, database: Database) -> None:
    broker.append("orders", 0, *(output(n) for n in range(8)))

    def set_back() -> None:
        with closing(database.connect()) as other, other:
            other.execute("UPDATE outbox_consumer_position SET next_offset = 1 WHERE partition = 0")

    def run() -> None:
        with closing(database.connect()) as connection:
            for each in member(broker, connection):
                apply(connection, each)
                if each.offset == 1:
                    broker.members[0].after_fetch = set_back

    with pytest.raises(PositionError, match="went back to 1"):
        run()
    broker.members[0].closed = True
    # The ids know what was consumed.
    consume_all(broker, database)
    assert database.effects() == [str(n) for n in range(8)]

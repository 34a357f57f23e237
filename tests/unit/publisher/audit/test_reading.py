"""Where an audit begins to read the topics, and that nothing in them ends it but Kafka itself."""

from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from contract.cursor import Cursor
from publisher.audit.readback.digest import RECEIVED, ReceivedOutput, bucket_of, partition_number
from publisher.audit.readback.readback import buckets_for, first_offsets
from publisher.audit.readback.received import ReceivedReader
from publisher.audit.readback.spill import Spill
from publisher.audit.readback.topics import Topic
from publisher.audit.scope import RecordedResume, Scope
from service.settings import KafkaSettings, PublisherSettings


def begins(recorded: int, resumes: list[RecordedResume]) -> int:
    """Where partition 0 of a topic with the offsets 3 to 9 is read from, when the audited deliveries began at `recorded`."""
    answers = iter([SimpleNamespace(fetchone=lambda: (0,)), [("t", "0", recorded)]])
    connection: Any = SimpleNamespace(execute=lambda *_: next(answers))
    scope = Scope(1, 1, 5, 9, [(5, 9)], True, [(1, 1, 1)], {}, resumes)
    return first_offsets(connection, scope, [Topic("t", "id", 1)], [{"0": 3}], [{"0": 9}], set())[0]["0"]


def test_what_was_recorded_of_a_replaced_topic_does_not_say_where_to_read_the_new_one() -> None:
    before, after = (RecordedResume(1, 0, 3, Cursor(batch), Cursor(batch), "") for batch in (4, 5))
    assert [begins(recorded, []) for recorded in (1, 7, 9, 10)] == [3, 7, 9, 3]
    assert begins(7, [before]) == 7
    assert begins(7, [after]) == 3


def reader(folder: Path, state: Any) -> tuple[ReceivedReader, Spill]:
    """A reader of a topic `t` with one partition of ten offsets."""
    settings: Any = SimpleNamespace(publisher=PublisherSettings(), kafka=KafkaSettings())
    found = Spill(folder, "found", RECEIVED, 1)
    found.restore([])
    return ReceivedReader(settings, state, folder, found), found


def state() -> Any:
    return SimpleNamespace(
        topics=["t"],
        inputs=["other", "a"],
        seed="",
        ends=[{"0": 10}],
        next_offsets=[{"0": 0}],
        foreign=[],
        counted={},
    )


def message(offset: int, outbox_id: bytes) -> Any:
    return SimpleNamespace(
        error=lambda: None,
        topic=lambda: "t",
        partition=lambda: 0,
        offset=lambda: offset,
        key=lambda: b"k",
        value=lambda: b"v",
        headers=lambda: [("outbox-id", outbox_id)],
        timestamp=lambda: (1, 5),
    )


def test_ids_of_strangers_are_counted_whatever_bytes_they_have_and_take_no_room(tmp_path: Path) -> None:
    known = state()
    found, spill = reader(tmp_path, known)
    places = (b"\xff/0", b"a/7", b"x/0", b"a/2147483648", b"a/2147483647")
    found.take([message(offset, place + b"/9/0") for offset, place in enumerate(places)])
    assert spill.flush() == [2 * RECEIVED.size]
    kept = [ReceivedOutput._make(each).input_partition for each in spill.read(0)]
    assert kept == [partition_number(1, 7), partition_number(1, 2**31 - 1)]
    assert known.counted == {"records": 5, "records_of_other_outboxes": 3}
    assert known.foreign == ["t"]
    assert known.inputs == ["other", "a"]


def test_an_id_that_names_no_place_of_kafka_s_is_foreign_and_not_kept(tmp_path: Path) -> None:
    """Others who may write to the topic choose it, up to a megabyte a record."""
    known = state()
    found, spill = reader(tmp_path, known)
    found.take(
        [
            message(0, b"x" * 1_000_000 + b"/x/9/0"),
            message(1, b"a/0/9/0"),
            message(2, b"a/" + b"9" * 6_000 + b"/9/0"),
        ]
    )
    assert spill.flush() == [RECEIVED.size]
    assert known.counted == {"foreign_records": 2, "records": 1}


def test_nobody_can_write_records_that_fill_one_bucket() -> None:
    places = [f"a/0/{offset}".encode() for offset in range(20_000)]
    together = [place for place in places if bucket_of(place, 100, b"one audit") == 7]
    spread = Counter(bucket_of(place, 100, b"another one") for place in together)
    assert len(together) > 100
    assert max(spread.values()) < 20


def test_there_are_buckets_for_what_others_have_written_to_the_topics() -> None:
    assert buckets_for(10, 10) == 1
    assert buckets_for(10, 10**8) == 401
    assert buckets_for(10**8, 10) == 401
    assert buckets_for(10, 2**62) == 20_000

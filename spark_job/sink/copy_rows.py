"""The statements of the sink's transaction that store rows and dead letters. Only `_drop_settled` touches old partitions of
session_output: after an upgrade.
"""

from collections.abc import Mapping, Sequence

from psycopg.types.json import Jsonb

from db.connection import Connection
from db.statements import queries
from service.lifecycle.fault_points import reach
from spark_job.input.offsets import Offsets, TopicPartition
from spark_job.ledger.generations import Generation
from spark_job.outputs import pgcopy
from spark_job.sink.batch_result import Letter, OutputRow

_LEDGER = queries("spark_job", "ledger")
_LETTERS = queries("spark_job", "letters")


def copy_rows(
    connection: Connection, parts: Sequence[Sequence[OutputRow]], first_batch: int, lanes: int, revision: int
) -> range:
    """COPY the rows of each part to a batch of its own; return the batches.

    A second row of a key in a batch breaks the unique constraint and ends the transaction.
    """
    batches = range(first_batch, first_batch + len(parts))
    for batch_id, rows in zip(batches, parts, strict=True):
        if not rows:
            continue
        with connection.cursor() as cursor, cursor.copy(_LEDGER["copy_rows"]) as copy:
            copy.write(pgcopy.HEADER)
            for row in rows:
                copy.write(row.copy(batch_id, lanes, revision))
                reach("sink.during_copy")
            copy.write(pgcopy.TRAILER)
    return batches


def insert_letters(
    connection: Connection,
    letters: Sequence[Letter],
    generation: Generation,
    topic_names: Mapping[str, str],
    batch_id: int,
    start: Offsets,
) -> dict[str, int]:
    """Insert the letters that the outbox does not have yet; return their number by reason. In a reissue, they also resolve older ones.

    `topic_names`: {topic id: topic}. `start`: the batch's. A letter can close below `start` only after an upgrade: a release before schema
    0005 may have settled that letter's events.
    """
    if not letters:
        return {}
    connection.execute(_LETTERS["create_stage"])
    with connection.cursor() as cursor, cursor.copy(_LETTERS["copy_stage"]) as copy:
        copy.write(pgcopy.HEADER)
        for letter in letters:
            copy.write(_letter_row(letter, topic_names[letter.where.topic_id]))
        copy.write(pgcopy.TRAILER)
    below = [letter for letter in letters if letter.closing_offset < start.at(letter.where)]
    if below:
        _drop_settled(connection, below, generation, start)
    of_batch = {"revision": generation.revision, "batch_id": batch_id}
    if generation.revision:
        connection.execute(_LETTERS["resolve_rewritten"], of_batch)
    new = connection.execute(_LETTERS["insert"], of_batch | {"generation": generation.number})
    return dict(new.fetchall())


def _drop_settled(
    connection: Connection, letters: Sequence[Letter], generation: Generation, start: Offsets
) -> None:
    first: dict[TopicPartition, int] = {}
    for letter in letters:
        first[letter.where] = min(letter.first_offset, first.get(letter.where, letter.first_offset))
    found = connection.execute(
        _LEDGER["batch_before"],
        {"generation": generation.number, "offsets": Jsonb(Offsets(first).to_json())},
    ).fetchone()
    connection.execute(
        _LETTERS["drop_settled"],
        {"start": Jsonb(start.to_json()), "since": found[0] if found else 0},
        prepare=False,  # a generic plan would lock every partition of session_output
    )


def _letter_row(letter: Letter, topic: str) -> bytes:
    return pgcopy.count(14) + b"".join(
        [
            pgcopy.data(letter.where.topic_id.encode()),
            pgcopy.data(topic.encode()),
            pgcopy.int4(letter.where.partition),
            pgcopy.int8(letter.first_offset),
            pgcopy.int8(letter.last_offset),
            pgcopy.int8(letter.closing_offset),
            pgcopy.data(letter.reason.encode()),
            pgcopy.nullable(None if letter.key is None else letter.key.encode()),
            pgcopy.data(letter.detail.encode()),
            pgcopy.int4(letter.event_count),
            pgcopy.array(pgcopy.INT8, letter.kept, letter.offsets),
            pgcopy.array(pgcopy.INT8, letter.kept, letter.times_ms),
            pgcopy.array(pgcopy.BYTEA, letter.kept, letter.values),
            pgcopy.NULL if letter.types is None else pgcopy.array(pgcopy.TEXT, letter.kept, letter.types),
        ]
    )

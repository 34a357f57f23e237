"""Follows one session by its key: through the input topic, the outbox and an output topic.

python -m examples.clickstream.show --session-key sess_000013 --topic shop.clicks
python -m examples.clickstream.show --session-key sess_000013 --outbox
python -m examples.clickstream.show --session-key sess_000013 --topic shop.funnel
"""

from collections.abc import Sequence
from typing import Annotated, Any

import psycopg
import typer
from confluent_kafka import KafkaException

from db.connection import connect
from db.statements import queries
from examples.clickstream.reading import KafkaRecord, ReadError, read_topic
from examples.clickstream.topics import CONFIG, Config
from service.commands.output import console, error_console
from service.commands.tables import Table
from service.errors import OutboxError
from service.settings import PostgresSettings, load_settings

_SESSIONS = queries("examples.clickstream", "sessions")


def show(
    session_key: Annotated[str, typer.Option(help="Key of the session.")],
    topic: Annotated[str | None, typer.Option(help="Print this topic's records of the session.")] = None,
    outbox: Annotated[
        bool, typer.Option("--outbox", help="Print its rows of the view outbox.event.")
    ] = False,
    config: Config = CONFIG,
) -> None:
    """Print what a topic (as a read_committed consumer sees it) or the outbox holds of one session."""
    if outbox == (topic is not None):
        raise typer.BadParameter("give either --topic NAME or --outbox")
    try:
        settings = load_settings(config)
        if topic is not None:
            records = [r for r in read_topic(settings.kafka, topic) if r.key == session_key.encode()]
            record_table(records).print(console())
        else:
            row_table(outbox_rows(settings.postgres, session_key)).print(console())
    except (ReadError, KafkaException, OutboxError, psycopg.Error) as error:
        error_console().print(f"show: {error}", style="red")
        raise typer.Exit(2) from None


def outbox_rows(postgres: PostgresSettings, session_key: str) -> list[tuple[Any, ...]]:
    """The session's rows of outbox.event in order: batch, outbox-id, revision, topic, value as JSON text, delivery state."""
    with connect(postgres, "clickstream-show", autocommit=True) as connection:
        sql = _SESSIONS["events"]
        return connection.execute(sql, {"session_key": session_key}).fetchall()


def record_table(records: Sequence[KafkaRecord]) -> Table:
    """Kafka records for people: where each lies, its outbox-id, revision and replay if it has them, and its value."""
    sent = any("outbox-id" in record.headers for record in records)
    table = Table(["topic/partition/offset", *(["outbox-id", "revision"] if sent else [])])
    for record in records:
        place = f"{record.topic}/{record.partition}/{record.offset}"
        outbox_id = record.headers.get("outbox-id", b"").decode()
        # A revision of 0 has no header.
        revision = record.headers.get("outbox-revision", b"0").decode()
        replay = record.headers.get("outbox-replay")
        table.add(
            *([place, outbox_id, revision] if sent else [place]),
            note="" if replay is None else f"replay {replay.decode()}",
            block=(record.value or b"").decode(errors="backslashreplace"),
        )
    return table


def row_table(rows: Sequence[tuple[Any, ...]]) -> Table:
    """Rows of outbox.event for people."""
    table = Table(["outbox-id", "revision", "batch", "state", "topic"])
    for batch, outbox_id, revision, topic, value, state in rows:
        table.add(outbox_id, str(revision), str(batch), state, topic, block=str(value))
    return table


if __name__ == "__main__":
    typer.run(show)

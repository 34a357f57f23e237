"""Follows one session by its key: through the input topic, the outbox and an output topic.

python -m examples.clickstream.show --session-key sess_000013 --topic shop.clicks
python -m examples.clickstream.show --session-key sess_000013 --outbox
python -m examples.clickstream.show --session-key sess_000013 --topic shop.funnel
"""

from typing import Annotated, Any

import psycopg
import typer
from confluent_kafka import KafkaException
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from db.connection import connect
from db.statements import queries
from examples.clickstream.topics import CONFIG, Config
from examples.demo.reading import KafkaRecord, ReadError, read_topic
from service.errors import OutboxError
from service.settings import PostgresSettings, load_settings

_SESSIONS = queries("examples.clickstream", "sessions")

_PIPE_WIDTH = 10_000


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
            _wide_console().print(record_table(records))
        else:
            _wide_console().print(row_table(outbox_rows(settings.postgres, session_key)))
    except (ReadError, KafkaException, OutboxError, psycopg.Error) as error:
        Console(stderr=True).print(f"show: {error}", style="red", markup=False)
        raise typer.Exit(2) from None


def _wide_console() -> Console:
    """A terminal folds at its width; a pipe or a file has none."""
    console = Console(highlight=False)
    return console if console.is_terminal else Console(width=_PIPE_WIDTH, highlight=False)


def outbox_rows(postgres: PostgresSettings, session_key: str) -> list[tuple[Any, ...]]:
    """The session's rows of outbox.event in order: batch, outbox-id, topic, value as JSON text, delivery state."""
    with connect(postgres, "clickstream-show", autocommit=True) as connection:
        sql = _SESSIONS["events"]
        return connection.execute(sql, {"session_key": session_key}).fetchall()


def record_table(records: list[KafkaRecord]) -> Table:
    """Kafka records for people: where each lies, its outbox-id if it has one, and its value."""
    table = _table("topic/partition/offset, outbox-id", "value")
    for record in records:
        place = f"{record.topic}/{record.partition}/{record.offset}"
        outbox_id = record.headers.get("outbox-id", b"").decode()
        value = (record.value or b"").decode(errors="backslashreplace")
        table.add_row(f"{place}\n{outbox_id}" if outbox_id else place, escape(value))
    return table


def row_table(rows: list[tuple[Any, ...]]) -> Table:
    """Rows of outbox.event for people."""
    table = _table("outbox_id, batch, state, topic", "value")
    for batch, outbox_id, topic, value, state in rows:
        table.add_row(f"{outbox_id}\nbatch {batch}, {state}, {topic}", escape(str(value)))
    return table


def _table(*names: str) -> Table:
    table = Table(box=None, header_style="bold", pad_edge=False)
    table.add_column(names[0], no_wrap=True)
    table.add_column(names[1], overflow="fold")
    return table


if __name__ == "__main__":
    typer.run(show)

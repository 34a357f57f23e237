"""With a schema registry: events are read by it, outputs are encoded by it, and nothing is registered whatever the settings say."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from unittest.mock import Mock

import pytest
import typer
from structlog.testing import capture_logs

from service.settings import (
    SchemaRegistrySettings,
    SessionSettings,
    Settings,
    SourceSettings,
    TransformSettings,
)
from spark_job import OutputEvent, Session, WithSchema
from spark_job.commands.decode import decode
from spark_job.dead_letters import cli as dead_letters
from spark_job.dead_letters.retry import Retry
from spark_job.outputs.schemas import OutputSchemaRefusedError
from spark_job.testing import TransformRun
from spark_job.testing.records import Record, table_of
from spark_job.trial.cli import runner_of
from tests.support.schemas.clicks import registered
from tests.support.schemas.registry import Registry, registry
from tests.support.schemas.transforms import TOTALS


@pytest.fixture(name="server")
def _server() -> Iterator[Registry]:
    with registry(own=True) as found:
        yield found


@dataclass
class Click:
    price_cents: int
    page: str | None = None


def transform(session: Session) -> Iterable[OutputEvent]:
    """Typed access reads decoded values, too."""
    cents = sum(event.as_(Click).price_cents for event in session.events)
    yield OutputEvent("totals", WithSchema({"key": session.key, "cents": cents}, TOTALS["avro"]))


def tried(server: Registry) -> TransformRun:
    options = server.options()
    settings = Settings(
        source=SourceSettings(topics=("in",), format="avro"),
        session=SessionSettings(start="start", entry="entry", end="end"),
        schema_registry=SchemaRegistrySettings(url=str(options["url"]), auto_register=True),
    )
    server.use(settings.schema_registry.client())
    encode = registered(server, "avro")
    values = [
        encode({"event_type": kind, "session_key": "k", "price_cents": 100, "tags": []})
        for kind in ("start", "entry", "end")
    ]
    runner = runner_of(settings, transform)
    return runner.run(table_of([Record(value) for value in values], runner.columns), "in", 0)


def test_events_and_outputs_are_those_of_the_job(server: Registry) -> None:
    number = server.register("totals-value", "AVRO", TOTALS["avro"].definition)
    (output,) = tried(server).outputs
    assert output.value == b"\0" + number.to_bytes(4, "big") + b"\x02k" + b"\xd8\x04"


def test_a_schema_that_is_not_registered_is_named_and_not_registered(server: Registry) -> None:
    with pytest.raises(OutputSchemaRefusedError, match="Register it first"):
        tried(server)
    assert [
        each for each in server.asked if "totals-value/versions" in each and each.startswith("POST")
    ] == []


@pytest.mark.parametrize("ask", ["try", "decode", "show", "retry"])
def test_every_command_names_one_that_is_reached_without_tls(
    ask: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = Settings(
        schema_registry=SchemaRegistrySettings(url="http://registry.example:8081"),
        transform=TransformSettings(function=f"{__name__}:transform"),
    )
    monkeypatch.setattr("spark_job.commands.decode.load_settings", lambda _config: settings)
    asking: dict[str, Callable[[], object]] = {
        "try": lambda: runner_of(settings, transform),
        "decode": lambda: decode(["no value"]),
        "show": lambda: dead_letters._decoder(settings, "avro"),
        "retry": lambda: Retry(Mock(), settings),
    }
    with capture_logs() as logged, suppress(typer.Exit):
        asking[ask]()
    assert [(line["event"], line["server"]) for line in logged] == [
        ("connection_unprotected", "the schema registry")
    ]

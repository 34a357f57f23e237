"""With a schema registry: events are read by it, outputs are encoded by it, and nothing is registered whatever the settings say."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import pytest

from service.settings import SchemaRegistrySettings, SessionSettings, Settings, SourceSettings
from spark_job import OutputEvent, Session, WithSchema
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

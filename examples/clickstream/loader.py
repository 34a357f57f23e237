"""Plays the sample clickstream into Kafka: every session wrapped in a start and an end, in time order.

    python -m examples.clickstream.loader --speed-up 0          # 38,316 events as fast as possible
    python -m examples.clickstream.loader --speed-up 100000     # half a year in two and a half minutes

The speed-up changes when records are sent, not the event times in them: those keep their real distances, which is why
the example's session timeout is half an hour and does not depend on the speed.

With `--config examples/clickstream/outbox-avro.toml` the events are Avro, and their schema is registered.
"""

from datetime import UTC, datetime
from typing import Annotated

import typer
from confluent_kafka import KafkaException
from rich.console import Console

from examples.clickstream.dataset import DatasetError, read_clicks
from examples.clickstream.events import Record, from_clicks
from examples.clickstream.played import left_to_play
from examples.clickstream.producer import ProduceError, TopicWriter, paced
from examples.clickstream.reading import ReadError
from examples.clickstream.topics import CLICKS, CONFIG, Config
from service.commands.progress import progress_bar
from service.errors import SettingsError
from service.formats.writer import RegistryAwayError, RegistryRefusedError
from service.settings import load_settings

REGISTRY_ERRORS = (RegistryAwayError, RegistryRefusedError)

screen = Console(stderr=True)


def load(
    speed_up: Annotated[float, typer.Option(min=0, help="Event seconds a second; 0: do not wait.")] = 0,
    topic: Annotated[str, typer.Option(help="Topic to write to.")] = CLICKS,
    rebase: Annotated[bool, typer.Option("--rebase", help="Shift event times: the first is now.")] = False,
    unless_played: Annotated[
        bool, typer.Option("--unless-played", help="Play only what the topic does not have yet.")
    ] = False,
    config: Config = CONFIG,
) -> None:
    """Play the sample clickstream into a Kafka topic as start, entry and end events."""
    if rebase and unless_played:
        raise typer.BadParameter(
            "a second run shifts by another time: give --rebase or --unless-played, not both"
        )
    try:
        settings = load_settings(config)
        records = list(from_clicks(read_clicks(), datetime.now(UTC) if rebase else None))
        if unless_played:
            records = left_to_play(settings.kafka, topic, records)
        if settings.source.format == "avro":
            # The registry's packages are an extra.
            from examples.clickstream.avro import as_avro, registered

            records = list(as_avro(records, registered(settings.schema_registry, topic)))
        with TopicWriter(settings.kafka, topic) as writer:
            play(writer, records, speed_up, f"clickstream to {topic}")
    except (DatasetError, KafkaException, ProduceError, ReadError, SettingsError, *REGISTRY_ERRORS) as error:
        screen.print(f"loader: {error}", style="red", markup=False)
        raise typer.Exit(2) from None
    print(f"loader: topic={topic} events={len(records)} sessions={len({key for key, _, _ in records})}")


def play(writer: TopicWriter, records: list[Record], speed_up: float, what: str) -> None:
    """Write records at their pace, with a progress bar on stderr."""
    with progress_bar() as bar:
        task = bar.add_task(what, total=len(records))
        for group in paced(records, speed_up):
            writer.write(group)
            bar.advance(task, len(group))


if __name__ == "__main__":
    typer.run(load)

"""`publisher parked park`: records a person's decision to park the rows for an output topic that does not exist."""

from typing import Annotated, Any

import typer
from confluent_kafka import KafkaException

from publisher.commands.common import database
from publisher.kafka.topics import Topics
from publisher.outbox import parked_topics
from publisher.protocol.remediation import park_command
from service.commands.confirm import confirm
from service.commands.options import Config, DryRun, Json, Yes
from service.commands.output import console, print_json
from service.errors import SettingsError, UnavailableError
from service.kafka import client as kafka_client
from service.settings import Settings, load_settings


def park(
    topic: Annotated[
        str, typer.Option("--topic", help="The output topic, which does not exist.", show_default=False)
    ],
    end: Annotated[
        bool, typer.Option("--end", help="Take the decision back: rows for it stop their lanes again.")
    ] = False,
    config: Config = None,
    dry_run: DryRun = False,
    yes: Yes = False,
    as_json: Json = False,
) -> None:
    """Park the rows for a missing output topic, with all their outputs, so that lanes continue.

    The decision holds until `--end`; it affects rows that lanes reach while the topic is missing. `requeue` sends the parked rows once the
    topic exists, `discard` gives them up. Exits with 2 where the topic exists, nothing waits for it, or missing topics are made.
    """
    settings = load_settings(config)
    with database(settings, "parked park") as connection:
        known = parked_topics.standing(connection)
        found = parked_topics.waiting(connection, topic)
        if end and topic not in known:
            raise SettingsError(
                f"no such decision stands for topic {topic!r}: `publisher status` shows those that do"
            )
        if not end and topic not in known:
            _check_missing(settings, topic, found)
        counts = found._asdict() | {"topic": topic, "parks": not end}
        if dry_run:
            _print_decision(as_json, counts, done=False)
            return
        if not as_json and not yes:
            _print_decision(as_json, counts, done=False)
        confirm(yes, "Continue?", "this changes which rows are sent")
        if end:
            parked_topics.take_back(connection, topic)
        else:
            parked_topics.decide(connection, topic)
    _print_decision(as_json, counts, done=True)


def _check_missing(settings: Settings, topic: str, found: parked_topics.Waiting) -> None:
    """Raise SettingsError unless rows wait for the topic, the topic does not exist, and publishers do not create it."""
    if settings.publisher.create_topics:
        raise SettingsError(
            f"[publisher] create_topics = true makes topic {topic!r} when a row goes to it: there is nothing to park. Nothing was changed"
        )
    if not found.rows:
        raise SettingsError(
            f"no undelivered row goes to topic {topic!r}: is that its name? `publisher status` says which lane waits for which. "
            "Nothing was changed"
        )
    try:
        topics = Topics(
            kafka_client.admin_client(settings.kafka),
            timeout_s=settings.kafka.request_timeout_s,
            create=False,
        )
        missing = topics.is_missing(topic)
    except KafkaException as error:
        raise UnavailableError(
            f"Kafka does not say whether topic {topic!r} exists: {error.args[0].str()}. Nothing was changed; try again"
        ) from error
    if not missing:
        raise SettingsError(f"topic {topic!r} exists: its rows go out. Nothing was changed")


def _print_decision(as_json: bool, counts: dict[str, Any], *, done: bool) -> None:
    if as_json:
        print_json(counts | {"changed": done})
        return
    waiting = f"{counts['rows']:,} rows of {counts['session_keys']:,} session keys wait, with {counts['outputs']:,} outputs"
    if counts["parks"]:
        back = f"{park_command(counts['topic'])} --end"
        text = f"lanes park the rows for it while it does not exist; `{back}` takes that back"
    else:
        text = "rows for it stop their lanes while it does not exist"
    console().print(
        f"topic {counts['topic']!r}: {waiting}\n{'decided: ' if done else 'to be decided: '}{text}"
    )

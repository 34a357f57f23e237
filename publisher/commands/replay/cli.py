"""`publisher replay`: lists, shows, continues, pauses and cancels replays. start.py starts a replay."""

import threading
from pathlib import Path
from typing import Annotated

import typer

from publisher.commands.common import database
from publisher.commands.replay.options import (
    CreateTopics,
    OtherRate,
    ReplayId,
    SkipRefused,
    ToConfig,
    ToServers,
)
from publisher.commands.replay.start import start
from publisher.commands.replay.work import begin, holder, work
from publisher.outbox.identity import check_unchanged, read_identity
from publisher.replay import store
from publisher.replay.printing import print_replay, replays_table
from publisher.replay.starting import answering
from publisher.replay.target import check_target, kafka_settings, open_target
from service.commands.options import Config, Json
from service.commands.output import console, print_json
from service.errors import FencedError, SettingsError
from service.settings import load_settings

app = typer.Typer(no_args_is_help=True, help="Send delivered outputs once more, exactly once each.")

app.command("start")(start)


@app.command("go-on")
def go_on(
    replay_id: ReplayId,
    to_config: ToConfig = None,
    to_servers: ToServers = None,
    create_topics: CreateTopics = False,
    rate: OtherRate = None,
    skip_refused: SkipRefused = False,
    config: Config = None,
    as_json: Json = False,
) -> None:
    """Continue a paused, interrupted, killed or stopped replay exactly where it was.

    Name another cluster again, as at the start: the target is not read from the database.
    """
    settings = begin(config)
    stop = threading.Event()
    with database(settings, "replay go-on") as connection:
        outbox = check_unchanged(connection, read_identity(connection))
        replay = store.load(connection, replay_id)
        if replay.state not in ("running", "paused"):
            raise SettingsError(f"replay {replay_id} is {replay.state}: start a new one to send it once more")
        if replay.held:
            raise FencedError(
                f"replay {replay_id} is worked on by {replay.lease_holder} already. `publisher replay pause {replay_id}` ends "
                "that at a transaction boundary"
            )
        if rate is not None:
            store.set_rate(connection, replay_id, rate or None)
            replay = store.load(connection, replay_id)
    kafka = kafka_settings(settings, to_config, to_servers)
    with answering(kafka):
        target = open_target(settings, outbox, kafka, stop, holder=holder(), create_topics=create_topics)
        check_target(target, replay)
    work(target, replay, as_json, paused_too=True, skip_refused=skip_refused)


@app.command("list")
def list_(
    all_states: Annotated[bool, typer.Option("--all", help="Also those that are done or cancelled.")] = False,
    config: Config = None,
    as_json: Json = False,
) -> None:
    """List replays with their progress."""
    with database(load_settings(config), "replay list") as connection:
        found = store.listed(connection, all_states=all_states)
    if as_json:
        print_json([one.as_json() for one in found])
        return
    replays_table(found).print(console())


@app.command("show")
def show(replay_id: ReplayId, config: Config = None, as_json: Json = False) -> None:
    """Show everything of one replay."""
    with database(load_settings(config), "replay show") as connection:
        found = store.load(connection, replay_id)
        keys = store.keys(connection, replay_id) if found.only_keys else None
    if as_json:
        print_json(found.as_json() | {"keys": keys})
    else:
        print_replay(console(), found, keys)


@app.command("pause")
def pause(replay_id: ReplayId, config: Config = None, as_json: Json = False) -> None:
    """Let a running replay end at its next transaction boundary; `go-on` continues."""
    _change(replay_id, "paused", config, as_json)


@app.command("cancel")
def cancel(replay_id: ReplayId, config: Config = None, as_json: Json = False) -> None:
    """End a replay for good at its next transaction boundary. Outputs that it has sent stay."""
    _change(replay_id, "cancelled", config, as_json)


def _change(replay_id: int, state: str, config: Path | None, as_json: bool) -> None:
    with database(load_settings(config), f"replay {state}") as connection:
        found = store.change(connection, replay_id, state)
    if as_json:
        print_json(found.as_json())
        return
    end = f"; {found.lease_holder} ends at its transaction boundary" if found.held else ""
    console().print(
        f"replay {replay_id} {state} at {found.events_sent:,} of {found.events_total:,} events{end}",
    )

"""`publisher replay`: delivered outputs once more."""

import os
import sys
import threading
from pathlib import Path
from typing import Annotated

import typer

from contract.output_topics import OutputTopics
from publisher.commands.common import database
from publisher.commands.replay.file import write_file
from publisher.commands.replay.options import (
    AcceptCompacted,
    CreateTopics,
    Everything,
    FromArchive,
    FromBatch,
    KeepSchemaIds,
    Key,
    KeysFile,
    OtherRate,
    Rate,
    ReplayId,
    Since,
    SkipRefused,
    ToBatch,
    ToConfig,
    ToFile,
    Topic,
    ToServers,
    ToTopic,
    Until,
)
from publisher.delivery.context import Context
from publisher.kafka.compaction import compacted_topics
from publisher.outbox.identity import check_unchanged, read_identity
from publisher.protocol.target_topics import TargetTopics
from publisher.replay import store
from publisher.replay.delivery import ReplayDelivery
from publisher.replay.filters import Filters
from publisher.replay.runner import End, run
from publisher.replay.showing import (
    count_table,
    counting,
    duration_line,
    print_replay,
    progress_of,
    replays_table,
)
from publisher.replay.starting import ReplayPlan, ReplayRequest, answering, make, make_plan
from publisher.replay.store import Replay
from publisher.replay.target import check_target, check_topics, kafka_settings, open_target
from service.commands.confirm import confirm
from service.commands.options import Config, DryRun, Json, Yes
from service.commands.output import console, error_console, print_json
from service.commands.progress import progress_bar
from service.commands.session_keys import read_keys
from service.commands.times import parse_moment
from service.errors import ContinuityError, FencedError, SettingsError
from service.kafka.client import admin_client
from service.lifecycle import fault_points
from service.lifecycle.fault_points import reach
from service.lifecycle.process import host_name
from service.lifecycle.shutdown import stop_on_signals
from service.observability import logs
from service.settings import Settings, load_settings

_SHOWN_KEYS = 10

app = typer.Typer(no_args_is_help=True, help="Send delivered outputs once more, exactly once each.")


@app.command("start")
def start(
    from_batch: FromBatch = None,
    to_batch: ToBatch = None,
    since: Since = None,
    until: Until = None,
    key: Key = None,
    keys_file: KeysFile = None,
    topic: Topic = None,
    everything: Everything = False,
    to_topic: ToTopic = None,
    to_file: ToFile = None,
    to_config: ToConfig = None,
    to_servers: ToServers = None,
    create_topics: CreateTopics = False,
    from_archive: FromArchive = False,
    rate: Rate = None,
    skip_refused: SkipRefused = False,
    dry_run: DryRun = False,
    yes: Yes = False,
    accept_compacted: AcceptCompacted = False,
    keep_schema_ids: KeepSchemaIds = False,
    config: Config = None,
    as_json: Json = False,
) -> None:
    """Send outputs that every lane has delivered once more, in the foreground. SIGTERM and SIGINT end it at a transaction boundary.

    Filters combine: all of them must hold. `replay go-on ID` continues where it was after any end, kill -9 included. --dry-run also asks
    the target, and ends as the start would. Exits with 1 where only session keys were named that have no row: nothing is sent then.
    """
    filters = Filters(
        from_batch=from_batch,
        to_batch=to_batch,
        since=None if since is None else parse_moment(since, "--since"),
        until=None if until is None else parse_moment(until, "--until"),
        keys=read_keys(key or (), keys_file),
        topics=tuple(dict.fromkeys(topic)) if topic else None,
    )
    if filters.empty and not everything:
        raise SettingsError(
            "a replay without a filter sends all that was ever delivered: say --all if that is intended, else narrow it down "
            "(--from-batch, --to-batch, --since, --until, --key, --keys-file, --topic)"
        )
    if to_file is not None and (to_config or to_servers or create_topics or rate or skip_refused):
        raise SettingsError("--to-file sends nothing: leave out what is for a target in Kafka")
    if to_file is not None and to_file.exists():
        raise SettingsError(f"--to-file {str(to_file)!r} is there already: name a new file")
    settings = _begin(config)
    if settings.schema_registry.url and (to_config or to_servers) and not keep_schema_ids:
        raise SettingsError(
            f"[schema_registry] url = {settings.schema_registry.url!r}: values may name their schemas by that registry's ids, and a replay "
            "sends them as they are. Say --keep-schema-ids if the other cluster's consumers use this registry, or one that has its schemas "
            "under the same ids; values are not encoded anew (docs/formats.md)"
        )
    request = ReplayRequest(
        filters, _targets(settings, to_topic), to_config, to_servers, rate, create_topics, from_archive
    )
    stop = threading.Event()
    kafka = request.kafka(settings)
    with database(settings, "replay start") as connection:
        outbox = check_unchanged(connection, read_identity(connection))
        plan = make_plan(connection, settings, request, counting)
    _show_plan(plan, to_stdout=dry_run and not as_json)
    if not plan.count.events or dry_run:
        if as_json:
            print_json(plan.as_json())
        elif not plan.count.events:
            console().print("nothing to send")
        if not plan.count.events:
            raise typer.Exit(1 if plan.only_unknown_keys else 0)
    elif to_file is None:
        confirm(yes, "Send them once more?", "a replay sends events once more")
    if to_file is not None:
        if not dry_run:
            _to_file(settings, plan, to_file, as_json)
        return
    with answering():
        making, names = create_topics and not dry_run, plan.destinations
        target = open_target(settings, outbox, kafka, stop, holder=_holder(), create_topics=making)
        if create_topics and not making:
            # What is missing would be made, and a dry run makes nothing.
            names = set(target.topics.ids(names))
        check_topics(target, names)
        compacted = compacted_topics(admin_client(kafka), names, kafka.request_timeout_s)
    if dry_run:
        if compacted and not accept_compacted:
            error_console().print(f"{_compacted_text(sorted(compacted))} (docs/compacted-outputs.md)")
        return
    _confirm_compacted(sorted(compacted), accepted=accept_compacted)
    with database(settings, "replay start") as connection:
        replay = make(connection, plan, target)
    reach("replay.after_creation")
    error_console().print(f"replay {replay.replay_id} begins; header outbox-replay: {replay.replay_uuid}")
    _work(target, replay, as_json, paused_too=False, skip_refused=skip_refused)


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
    """Continue with a replay that was paused, interrupted, killed or stopped, exactly where it was.

    Another cluster is named again as at the start: where a replay may lead is not taken from the database.
    """
    settings = _begin(config)
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
    with answering():
        target = open_target(settings, outbox, kafka, stop, holder=_holder(), create_topics=create_topics)
        check_target(target, replay)
    _work(target, replay, as_json, paused_too=True, skip_refused=skip_refused)


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
    """End a replay for good at its next transaction boundary. What it has sent stays."""
    _change(replay_id, "cancelled", config, as_json)


def _to_file(settings: Settings, plan: ReplayPlan, path: Path, as_json: bool) -> None:
    with database(settings, "replay start") as connection, progress_bar(quiet=as_json) as bar:
        task = bar.add_task("writing", total=plan.count.events)
        write_file(connection, settings, plan, path, lambda events: bar.advance(task, events))
    if as_json:
        print_json(plan.as_json() | {"file": str(path)})
    else:
        console().print(f"{plan.count.events:,} events written to {path}")


def _targets(settings: Settings, words: list[str] | None) -> TargetTopics:
    try:
        targets = TargetTopics.of_words(words) if words else TargetTopics()
    except ValueError as error:
        raise SettingsError(f"--to-topic: {error}") from error
    for name in targets.named:
        refused = OutputTopics(progress_topic=settings.publisher.progress_topic).refusal(name)
        if refused is not None:
            raise SettingsError(f"--to-topic: {refused}")
    return targets


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


def _confirm_compacted(topics: list[str], *, accepted: bool) -> None:
    """Ask before older values are put on top of newer ones. Raises SettingsError where nobody can be asked."""
    if not topics or accepted:
        return
    if sys.stdin.isatty():
        error_console().print(f"{_compacted_text(topics)}")
    confirm(
        False,
        "Send them all the same?",
        f"{_compacted_text(topics)} (docs/compacted-outputs.md)",
        flag="--accept-compacted",
    )


def _compacted_text(topics: list[str]) -> str:
    return (
        f"compacted: {', '.join(topics)}. A replay appends, and the last record of a key is its value there: a key that has a newer "
        "output than those that are replayed falls back to an older value, for good"
    )


def _begin(config: Path | None) -> Settings:
    settings = load_settings(config)
    logs.configure(settings.log)
    fault_points.arm(settings.testing.fault_file)
    return settings


def _holder() -> str:
    return f"{host_name()}:{os.getpid()}"


def _work(target: Context, replay: Replay, as_json: bool, *, paused_too: bool, skip_refused: bool) -> None:
    with stop_on_signals(target.stop), progress_of(replay) as progressed:
        delivery = ReplayDelivery(
            target, replay, paused_too=paused_too, skip_refused=skip_refused, progressed=progressed
        )
        end = run(target, delivery, replay.replay_id)
    with database(target.settings, "replay") as connection:
        found = store.load(connection, replay.replay_id)
    if as_json:
        print_json(found.as_json())
    else:
        skipped = f", {found.rows_skipped:,} rows left out" if found.rows_skipped else ""
        state = end.value if end is not End.CHANGED else found.state
        again = (
            ""
            if found.state in ("done", "cancelled")
            else f". `publisher replay go-on {found.replay_id}` continues"
        )
        console().print(
            f"replay {found.replay_id} {state}: {found.events_sent:,} of {found.events_total:,} events sent{skipped}{again}",
        )
    if found.state == "done" and found.reason is not None:
        raise ContinuityError(found.reason)


def _show_plan(plan: ReplayPlan, *, to_stdout: bool) -> None:
    out = console() if to_stdout else error_console()
    batches = plan.batches
    if not batches.empty:
        out.print(f"batches {batches.first:,} to {batches.last:,}")
    for note in batches.notes:
        out.print(note)
    _warn_of_unknown_keys(plan)
    if plan.count.events:
        count_table(plan.count, plan.request.targets).print(out)
        if plan.request.rate is not None and plan.seconds_at_rate is not None:
            out.print(duration_line(plan.request.rate, plan.seconds_at_rate))


def _warn_of_unknown_keys(plan: ReplayPlan) -> None:
    keys = plan.unknown_keys
    for key in keys[:_SHOWN_KEYS]:
        error_console().print(
            f"session key {key!r} has no row in these batches: is it spelled correctly?",
            style="yellow",
        )
    if len(keys) > _SHOWN_KEYS:
        error_console().print(
            f"{len(keys) - _SHOWN_KEYS:,} more session keys have no row in these batches", style="yellow"
        )

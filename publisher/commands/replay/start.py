"""`publisher replay start`: counts the outputs, and sends them to Kafka after a confirmation, or writes a file."""

import sys
import threading
from pathlib import Path

import typer

from contract.output_topics import OutputTopics
from publisher.commands.common import database
from publisher.commands.replay.file import FileFormat, format_of, write_file
from publisher.commands.replay.options import (
    AcceptCompacted,
    CreateTopics,
    Everything,
    FromArchive,
    FromBatch,
    KeepSchemaIds,
    Key,
    KeysFile,
    Rate,
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
from publisher.commands.replay.work import begin, holder, work
from publisher.kafka.compaction import compacted_topics
from publisher.outbox.identity import check_unchanged, read_identity
from publisher.protocol.replay_targets import ReplayTargets
from publisher.replay.printing import count_table, counting, duration_line
from publisher.replay.selection import Filters
from publisher.replay.starting import ReplayPlan, ReplayRequest, answering, make, make_plan
from publisher.replay.target import check_topics, open_target
from service.commands.confirm import confirm
from service.commands.options import Config, DryRun, Json, Yes
from service.commands.output import console, error_console, print_json
from service.commands.progress import progress_bar
from service.commands.session_keys import read_keys
from service.commands.times import parse_moment
from service.errors import SettingsError
from service.kafka.client import admin_client
from service.lifecycle.fault_points import reach
from service.private_file import check_writable
from service.settings import Settings

_SHOWN_KEYS = 10


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
    """Send once more, in the foreground, outputs that every lane has delivered. SIGTERM and SIGINT end it at a transaction boundary.

    Filters combine: all of them must hold. `replay go-on ID` continues a replay that was paused, stopped or interrupted, by kill -9 too. A
    dry run also checks the target, and has the exit code of the start. Exits with 1, and sends nothing, if every named session key has no
    row.
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
        raise SettingsError("--to-file sends nothing: leave out the options of a target in Kafka")
    if to_file is not None and to_file.exists():
        raise SettingsError(f"--to-file {str(to_file)!r} exists already: name a new file")
    if to_file is not None and not dry_run:
        # Check this before the rows are counted.
        check_writable(to_file, "--to-file")
    form = None if to_file is None else format_of(to_file)
    settings = begin(config)
    if settings.schema_registry.url and (to_config or to_servers) and not keep_schema_ids:
        raise SettingsError(
            f"[schema_registry] url = {settings.schema_registry.url!r}: values may name their schemas by that registry's ids, and a replay "
            "sends them as they are. Say --keep-schema-ids if the other cluster's consumers use this registry, or one that has its schemas "
            "under the same ids; values are not encoded again (docs/formats.md)"
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
    elif form is None:
        confirm(yes, "Send them once more?", "a replay sends events once more")
    if to_file is not None and form is not None:
        if not dry_run:
            _to_file(settings, plan, to_file, form, as_json)
        return
    with answering(kafka):
        making, names = create_topics and not dry_run, plan.destinations
        target = open_target(settings, outbox, kafka, stop, holder=holder(), create_topics=making)
        if create_topics and not making:
            # The start would create missing topics; a dry run creates nothing, so it checks only the topics that exist.
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
    work(target, replay, as_json, paused_too=False, skip_refused=skip_refused)


def _to_file(settings: Settings, plan: ReplayPlan, path: Path, form: FileFormat, as_json: bool) -> None:
    with database(settings, "replay start") as connection, progress_bar(quiet=as_json) as bar:
        task = bar.add_task("writing", total=plan.count.events)
        write_file(connection, settings, plan, path, form, lambda events: bar.advance(task, events))
    if as_json:
        print_json(plan.as_json() | {"file": str(path)})
    else:
        console().print(f"{plan.count.events:,} events written to {path}")


def _targets(settings: Settings, words: list[str] | None) -> ReplayTargets:
    try:
        targets = ReplayTargets.of_words(words) if words else ReplayTargets()
    except ValueError as error:
        raise SettingsError(f"--to-topic: {error}") from error
    for name in targets.named:
        refused = OutputTopics(progress_topic=settings.publisher.progress_topic).refusal(name)
        if refused is not None:
            raise SettingsError(f"--to-topic: {refused}")
    return targets


def _confirm_compacted(topics: list[str], *, accepted: bool) -> None:
    """Ask before older values replace newer ones in compacted topics. Raises SettingsError if there is nobody to ask."""
    if not topics or accepted:
        return
    if sys.stdin.isatty():
        error_console().print(f"{_compacted_text(topics)}")
    confirm(
        False,
        "Send them anyway?",
        f"{_compacted_text(topics)} (docs/compacted-outputs.md)",
        flag="--accept-compacted",
    )


def _compacted_text(topics: list[str]) -> str:
    return (
        f"compacted: {', '.join(topics)}. A replay appends, and the last record of a key is its value there. A key with an output newer "
        "than the replayed ones falls back to an older value, for good"
    )


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

"""`publisher erase`: asks for confirmation, erases session keys and named dead letters, and prints what could not be erased."""

from functools import partial
from pathlib import Path
from typing import Annotated

import psycopg
import typer

from publisher.commands.common import database
from publisher.erasure.archive_erasure import archive_of
from publisher.erasure.cache import cache_of, remove_cache
from publisher.erasure.erase import ErasedKey, Erasure, check_key
from publisher.erasure.letters import letter_position
from publisher.erasure.tombstones import TombstoneWriter
from publisher.outbox.identity import read_identity
from service.commands.confirm import confirm
from service.commands.options import Config, DryRun, Json, Yes
from service.commands.output import console, print_json
from service.commands.session_keys import read_keys
from service.errors import RefusedError, SettingsError, UnavailableError
from service.lifecycle import fault_points
from service.observability import logs
from service.settings import load_settings

_SHOWN = 20


def erase(
    key: Annotated[
        list[str] | None, typer.Argument(metavar="[KEY]...", help="Session keys.", show_default=False)
    ] = None,
    keys_file: Annotated[
        Path | None,
        typer.Option(
            "--keys-file",
            help="A file of session keys, one per line; in FILE.jsonl as JSON strings. Keeps them out of the shell history.",
        ),
    ] = None,
    tombstones: Annotated[
        list[str] | None,
        typer.Option(
            "--tombstones",
            metavar="TOPIC",
            help="Write a tombstone for each output's key to this compacted topic. Repeatable.",
        ),
    ] = None,
    letter: Annotated[
        list[str] | None,
        typer.Option(
            "--letter",
            metavar="TOPIC/PARTITION/OFFSET",
            help="Also erase the dead letter of this record, which has no session key and is discarded. Repeatable.",
        ),
    ] = None,
    wait: Annotated[
        float,
        typer.Option("--wait", min=0, help="Seconds to wait for deliveries, replays and open sessions."),
    ] = 60.0,
    dry_run: DryRun = False,
    yes: Yes = False,
    config: Config = None,
    as_json: Json = False,
) -> None:
    """Erase all that the outbox keeps of session keys, and the job's cache on this machine. Cannot be undone.

    All services may run meanwhile. The command waits for rows that are not delivered, rows that a replay needs, and open sessions. It does
    not reach Kafka's topics and backups: docs/privacy.md. Its login ([postgres] dsn) needs the role outbox_eraser.

    Exit codes: 0 nothing is left, 1 something is left (the output says what to do; run it again), 2 wrong settings or no key, 4 another
    erasure runs, 5 --dry-run: the archive is damaged, 6 Postgres or Kafka does not answer, 16 the login lacks the right.
    """
    keys = read_keys(key or (), keys_file) or ()
    letters = [letter_position(each) for each in letter or ()]
    if not keys and not letters:
        raise SettingsError("name session keys, a --keys-file, or a --letter")
    for each in keys:
        check_key(each)
    settings = load_settings(config)
    logs.configure(settings.log)
    fault_points.arm(settings.testing.fault_file)
    if not dry_run:
        what = f"{len(keys)} session keys" + (f" and {len(letters)} dead letters" if letters else "")
        confirm(yes, f"Erase {what} for ever?", "an erasure cannot be undone")
    try:
        with database(settings, "erase") as connection:
            identity = read_identity(connection)
            writer = TombstoneWriter(settings, identity, tombstones) if tombstones else None
            archive = partial(archive_of, connection, settings.retention, writer)
            erasure = Erasure(connection, keys, letters, writer, archive)
            if dry_run:
                erasure.look()
            else:
                erasure.run(wait)
    except psycopg.errors.InsufficientPrivilege as error:
        raise RefusedError(
            f"the login may not erase: {error.diag.message_primary}. Set [postgres] dsn (OUTBOX_POSTGRES__DSN) to a login that may: "
            "CREATE ROLE eraser LOGIN; GRANT outbox_eraser TO eraser; \\password eraser. Nothing was erased"
        ) from error
    except (psycopg.OperationalError, psycopg.InternalError) as error:
        raise UnavailableError(
            f"Postgres went away: {str(error).strip()}. What has been erased stays erased; run the command again for the rest"
        ) from error
    found = list(erasure.keys.values())
    cache = cache_of(settings.job.cache, identity.outbox_uuid)
    cache_files = _remove_cache(cache, found) if keys and not dry_run else 0
    missing = str(cache) if cache_files is None else None
    if as_json:
        print_json(
            {
                "keys": [each.as_json() for each in found],
                "letters": [each.as_json() for each in erasure.letters.values()],
                "letters_without_key": erasure.letters_without_key,
                "cache_files": cache_files or 0,
                "cache_missing": missing,
                "dry_run": dry_run,
            }
        )
    else:
        _print(erasure, cache_files or 0, missing, dry_run=dry_run)
    raise typer.Exit(1 if erasure.is_something_left else 0)


def _remove_cache(cache: Path, keys: list[ErasedKey]) -> int | None:
    try:
        return remove_cache(cache)
    except OSError as error:
        for each in keys:
            each.left.append(
                f"the job's cache on this machine was not removed: {error}. Run it as the job's user"
            )
        return 0


def _print(erasure: Erasure, cache_files: int, missing: str | None, *, dry_run: bool) -> None:
    out = console()
    would = "would be " if dry_run else ""
    for each in erasure.keys.values():
        out.print(
            f"key {each.key_hash[:16]}…: {each.rows:,} rows with {each.sessions:,} sessions, {each.archived_rows:,} archived rows and "
            f"{each.letters:,} dead letters {would}erased, {each.tombstones:,} tombstones written"
        )
        for line in each.left[:_SHOWN]:
            out.print(f"  left: {line}")
        if len(each.left) > _SHOWN:
            out.print(f"  left: {len(each.left) - _SHOWN:,} more; --json names all")
    for letter in erasure.letters.values():
        left = f"; left: {letter.left}" if letter.left else ""
        out.print(
            f"{letter.place}: {letter.letters:,} dead letters without a session key {would}erased{left}"
        )
    if erasure.letters_without_key:
        out.print(
            f"{erasure.letters_without_key:,} dead letters have no session key. Find those of the person: `spark-job dead-letters list "
            "--state all --keys-file FILE`, then erase them by --letter (docs/privacy.md)"
        )
    if missing is not None:
        out.print(f"no cache of this outbox at {missing}: delete it where the job runs (docs/privacy.md)")
    if not dry_run:
        out.print(
            f"{cache_files:,} files of the job's cache removed on this machine. Kafka's topics, backups, other logs and the caches on "
            "other machines keep what they have (docs/privacy.md)"
        )

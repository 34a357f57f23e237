"""The commands of `outbox-migrate`."""

import sys
from typing import Annotated

import typer

from db import migrate
from db.connection import connect
from db.migrate import HEAD
from db.server_check import CHECKS, ask_server, connections_needed, explain
from service.commands.checks import run_checks, show_results
from service.commands.confirm import confirm
from service.commands.options import Config, Json, Yes
from service.commands.output import console, print_json
from service.errors import SchemaError
from service.settings import load_settings


def up(
    revision: Annotated[str, typer.Argument(help="The last revision to apply.")] = HEAD,
    config: Config = None,
) -> None:
    """Make the schema, or upgrade it to this release's revision. Does nothing if the schema is already current.

    Each revision is one transaction, which gives up after it has waited 5 s for a lock. docs/upgrade.md says for which revisions the
    services must be stopped. Exit codes: 0 done, 2 wrong settings, 3 the migration was refused, 6 Postgres did not answer, or
    somebody holds a lock, 16 Postgres refuses the login.
    """
    server = load_settings(config).postgres
    migrate.upgrade(server, revision, _applied)
    _say(migrate.current(server))


def down(
    revision: Annotated[str, typer.Argument(help="The revision to go back to; base: before the first one.")],
    config: Config = None,
    yes: Yes = False,
) -> None:
    """Downgrade the schema for an older release. `base` drops the whole outbox with its data.

    Stop both services first. Exit codes: as for `up`, and 1 not confirmed.
    """
    lost = "the whole outbox with its data" if revision == "base" else f"what was added after {revision}"
    confirm(yes, f"This drops {lost}. Continue?", f"this drops {lost}")
    server = load_settings(config).postgres
    migrate.downgrade(server, revision, _reverted)
    _say(migrate.current(server))


def status(config: Config = None, as_json: Json = False) -> None:
    """Show the revision of the database. Exit codes: 0 it is this release's, 3 it is not, 2 and 6 as for `up`."""
    found = migrate.current(load_settings(config).postgres)
    if as_json:
        print_json({"revision": found, "needed": HEAD, "current": found == HEAD})
    else:
        _say(found)
    if found != HEAD:
        raise typer.Exit(SchemaError.exit_code)


def check(
    config: Config = None,
    publishers: Annotated[
        int, typer.Option(min=1, help="Processes of `publisher run` to count connections for.")
    ] = 2,
    as_json: Json = False,
) -> None:
    """Check whether this Postgres can hold an outbox. Changes nothing.

    Exit codes: 0 it can, 16 a check failed or the login is refused, 2 wrong settings or a pooler that keeps no sessions, 3 there is no such
    database, 6 Postgres did not answer.
    """
    settings = load_settings(config)
    with connect(settings.postgres, "outbox-migrate check", autocommit=True) as connection:
        server = ask_server(connection, connections_needed(settings, publishers))
        found = run_checks(CHECKS, server, explain, quiet=as_json)
    show_results(found, json=as_json)


def sql(
    since: Annotated[
        str, typer.Option("--from", help="The database's revision; base: there is no outbox.")
    ] = "base",
) -> None:
    """Print the statements that bring the schema to this release's revision, for a DBA to run. Needs no database."""
    sys.stdout.write(migrate.upgrade_sql(since))


def _applied(revision: str, title: str) -> None:
    console().print(f"applied {revision}: {title}")


def _reverted(revision: str, title: str) -> None:
    console().print(f"took back {revision}: {title}")


def _say(found: str | None) -> None:
    if found is None:
        text = "there is no outbox"
    elif found == HEAD:
        text = f"the outbox is at revision {found}, which this release needs"
    else:
        text = f"the outbox is at revision {found}; this release needs {HEAD}"
    console().print(text)

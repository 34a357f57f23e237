"""`spark-job decode`: values in Confluent's wire format as JSON, for people: SQL shows them as bytes only."""

import sys
from typing import Annotated

import typer

from service.commands.options import Config
from service.errors import RefusedError, SettingsError, UnavailableError
from service.formats.registry.schemas import schemas_of
from service.formats.values import readable
from service.formats.writer import RegistryAwayError, RegistryRefusedError, Schemas
from service.kafka.transport import name_unprotected_registry
from service.printable import printable, printable_json
from service.settings import load_settings


def decode(
    values: Annotated[
        list[str] | None,
        typer.Argument(metavar="[HEX]...", help="The values; without any, one on each line of stdin."),
    ] = None,
    config: Config = None,
) -> None:
    """Print values in the wire format (hexadecimal, as psql shows bytes) as JSON, one on each line.

    A value that cannot be decoded is printed as it is; the command then exits with 1.
    """
    registry = load_settings(config).schema_registry
    options = registry.client()
    if not options:
        raise SettingsError("[schema_registry] url is not set: it says where the schemas are")
    name_unprotected_registry(registry)
    failed = False
    try:
        schemas = schemas_of(options)
        for line in values or sys.stdin:
            text = _shown(line.strip(), schemas)
            failed = failed or text is None
            shown = printable(line.strip()) if text is None else printable_json(text)
            sys.stdout.write(f"{shown}\n")
    except RegistryAwayError as error:
        raise UnavailableError(str(error)) from error
    except (RegistryRefusedError, ModuleNotFoundError) as error:
        raise RefusedError(str(error)) from error
    if failed:
        raise typer.Exit(1)


def _shown(text: str, schemas: Schemas) -> str | None:
    try:
        value = bytes.fromhex(text.removeprefix("\\x"))
    except ValueError:
        return None
    return readable(value, schemas)

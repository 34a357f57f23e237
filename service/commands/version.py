"""`--version` of every command."""

from importlib import metadata
from typing import Annotated

import typer

_DISTRIBUTION = "spark-outbox"


def installed_version() -> str:
    """Return the version of the installed package; `unknown` if the modules were copied without its metadata."""
    try:
        return metadata.version(_DISTRIBUTION)
    except metadata.PackageNotFoundError:
        return "unknown"


def _print(context: typer.Context, wanted: bool) -> None:
    if wanted:
        print(context.find_root().info_name, installed_version())
        raise typer.Exit


Version = Annotated[
    bool, typer.Option("--version", help="Print the version and exit.", is_eager=True, callback=_print)
]

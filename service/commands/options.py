"""Flags that several commands have: the same name, short form and sentence in both services."""

from pathlib import Path
from typing import Annotated

import typer

Config = Annotated[
    Path | None,
    typer.Option(
        "--config", "-c", help="Settings file. Default: $OUTBOX_CONFIG, else outbox.toml.", show_default=False
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document instead of text.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask: for scripts and containers.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Say what would happen, and change nothing.")]
Limit = Annotated[int, typer.Option("--limit", min=0, help="Rows to show at the most.")]

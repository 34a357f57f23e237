"""Options that several commands have."""

from pathlib import Path
from typing import Annotated

import typer

Config = Annotated[
    Path | None,
    typer.Option(
        "--config", "-c", help="Settings file. Default: $OUTBOX_CONFIG, else outbox.toml.", show_default=False
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]
Timeout = Annotated[
    float, typer.Option("--timeout", min=0.1, help="Seconds to wait for the running job's answer.")
]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask: for scripts and containers.")]

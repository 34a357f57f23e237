"""The options of `publisher replay`: what is sent, where it goes, how it is sent."""

from pathlib import Path
from typing import Annotated

import typer

from service.commands.times import SINCE

# What is sent: all filters must hold.
FromBatch = Annotated[int | None, typer.Option("--from-batch", min=1, help="First batch.")]
ToBatch = Annotated[int | None, typer.Option("--to-batch", min=1, help="Last batch.")]
Since = Annotated[str | None, typer.Option("--since", help=f"Batches committed since: {SINCE}.")]
Until = Annotated[str | None, typer.Option("--until", help=f"Batches committed before: {SINCE}.")]
Key = Annotated[list[str] | None, typer.Option("--key", help="Only this session key. Repeatable.")]
KeysFile = Annotated[
    Path | None,
    typer.Option(
        "--keys-file", help="Only the session keys in this file, one a line; in FILE.jsonl as JSON strings."
    ),
]
Topic = Annotated[
    list[str] | None, typer.Option("--topic", help="Only the outputs for this topic. Repeatable.")
]
Everything = Annotated[bool, typer.Option("--all", help="Without a filter: all that was delivered.")]
FromArchive = Annotated[
    bool,
    typer.Option(
        "--from-archive", help="Outputs that retention has archived, instead of those that are kept."
    ),
]

# Where it goes: to each output's own topic, unless another topic, cluster or a file is named.
ToTopic = Annotated[
    list[str] | None,
    typer.Option(
        "--to-topic",
        metavar="NAME|OLD=NEW",
        help="Send all of it to this topic instead of each output's own; or outputs for OLD to NEW. Repeatable.",
    ),
]
ToFile = Annotated[
    Path | None,
    typer.Option(
        "--to-file",
        help="Write this new file instead of sending anything: JSON lines, or Parquet if its name ends in .parquet.",
        dir_okay=False,
        show_default=False,
    ),
]
ToConfig = Annotated[
    Path | None,
    typer.Option("--to-config", help="Another cluster: a TOML file with a table kafka of its own."),
]
ToServers = Annotated[
    str | None, typer.Option("--to-servers", help="Another cluster, without options: HOST:PORT,…")
]
CreateTopics = Annotated[
    bool, typer.Option("--create-topics", help="Make missing target topics with the broker's defaults.")
]

# How it is sent, and what a person accepts.
Rate = Annotated[
    int | None,
    typer.Option("--rate", min=1, help="Events a second at the most; default: as fast as it goes."),
]
OtherRate = Annotated[
    int | None, typer.Option("--rate", min=0, help="Another rate from here on; 0: as fast as it goes.")
]
SkipRefused = Annotated[
    bool,
    typer.Option(
        "--skip-refused", help="Leave out rows that the target refuses for themselves: counted and logged."
    ),
]
AcceptCompacted = Annotated[
    bool,
    typer.Option(
        "--accept-compacted",
        help="Do not ask whether older values may become the newest of their keys in compacted topics; --yes alone does.",
    ),
]
KeepSchemaIds = Annotated[
    bool,
    typer.Option(
        "--keep-schema-ids",
        help="Another cluster's consumers find the schemas of [schema_registry] under the same ids: values are sent as they are.",
    ),
]

ReplayId = Annotated[int, typer.Argument(metavar="ID", min=1, help="The replay, as `replay list` shows it.")]

"""`publisher parked`: rows that Kafka refuses for themselves."""

from typing import Annotated

import typer
from rich.table import Table

from db.settings import load_settings
from db.statements import statement
from publisher.commands.common import Config, Json, console, database, print_json

app = typer.Typer(no_args_is_help=True, help="Rows that Kafka refuses for themselves.")


@app.command("list")
def parked_list(
    config: Config = None,
    as_json: Json = False,
    all_states: Annotated[bool, typer.Option("--all", help="Also what was requeued or discarded.")] = False,
    limit: Annotated[int, typer.Option(min=1, help="Rows to show at the most.")] = 1_000,
) -> None:
    """List parked rows, oldest first."""
    with database(load_settings(config), "parked list") as connection:
        cursor = connection.execute(
            statement("publisher", "parked_list"), {"all_states": all_states, "rows": limit}
        )
        names = [column.name for column in cursor.description or ()]
        rows = cursor.fetchall()
    if as_json:
        print_json([dict(zip(names, row, strict=True)) for row in rows])
        return
    table = Table(*names)
    for row in rows:
        table.add_row(*("" if value is None else str(value) for value in row))
    console().print(table)

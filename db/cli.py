"""`outbox-migrate`: create, upgrade and show the schema of the outbox, and check its server. The migrations are part of the package."""

from service.commands.main import DeferredCommand, command_line, run_command

app = command_line(
    "Make, upgrade and show the schema of the outbox.",
    [
        DeferredCommand(
            "check",
            "Check whether this Postgres can hold an outbox. Changes nothing.",
            "db.commands:check",
        ),
        DeferredCommand(
            "up",
            "Make the schema, or upgrade it to this release's revision. Does nothing if the schema is already current.",
            "db.commands:up",
        ),
        DeferredCommand(
            "down",
            "Downgrade the schema for an older release. `base` drops the whole outbox with its data.",
            "db.commands:down",
        ),
        DeferredCommand(
            "status",
            "Show the revision of the database. Exit codes: 0 it is this release's, 3 it is not, 2 and 6 as for `up`.",
            "db.commands:status",
        ),
        DeferredCommand(
            "sql",
            "Print the statements that bring the schema to this release's revision, for a DBA to run. Needs no database.",
            "db.commands:sql",
        ),
    ],
)


def main() -> None:
    """Run the command line."""
    run_command(app, "outbox-migrate")


if __name__ == "__main__":
    main()

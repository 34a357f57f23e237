"""`devstack`: a real Postgres, a real Kafka and, where wanted, a Spark cluster on this machine, without Docker."""

from rich.console import Console
from rich.markup import escape

from devstack.processes.errors import DevstackError
from service.commands.main import DeferredCommand, command_line

app = command_line(
    "A real Postgres 18 and a real Apache Kafka 4.2 as local processes, without Docker.",
    [
        DeferredCommand(
            "up",
            "Start the servers in the background and create the database `outbox`.",
            "devstack.commands:up",
        ),
        DeferredCommand(
            "down",
            "Stop the servers that `up` started in this directory, and delete their data.",
            "devstack.commands:down",
        ),
        DeferredCommand(
            "status",
            "Show what runs. Exit code 1 when one of the servers does not.",
            "devstack.commands:status",
        ),
        DeferredCommand(
            "psql",
            "Open this Postgres' psql on the outbox that OUTBOX_POSTGRES__DSN names.",
            "devstack.commands:psql",
            allow_extra_args=True,
            ignore_unknown_options=True,
            help_option_names=[],
        ),
        DeferredCommand(
            "create-topics",
            "Create topics on the Kafka that OUTBOX_KAFKA__BOOTSTRAP_SERVERS names. One that exists stays as it is.",
            "devstack.commands:create_topics",
        ),
    ],
)


def main() -> None:
    """Run the command line; an expected failure is one message on stderr and exit code 2."""
    try:
        app()
    except Exception as error:
        if not _is_expected(error):
            raise
        screen = Console(stderr=True)
        screen.print(f"[bold red]devstack:[/] {escape(str(error))}", highlight=False, soft_wrap=True)
        raise SystemExit(2) from None


def _is_expected(error: Exception) -> bool:
    # Help and completion import neither.
    from confluent_kafka import KafkaException

    from service.errors import OutboxError

    return isinstance(error, DevstackError | OutboxError | KafkaException)

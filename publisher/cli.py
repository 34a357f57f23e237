"""The command line, composed of the commands in publisher/commands."""

from service.commands.main import DeferredCommand, command_line, run_command

app = command_line(
    "Deliver the outbox to Kafka, exactly once.",
    [
        DeferredCommand(
            "run",
            "Deliver until SIGTERM or SIGINT: the transaction in flight ends first, and a second signal forces the end.",
            "publisher.commands.run:run",
        ),
        DeferredCommand(
            "check-cluster",
            "Test on a temporary topic what both services need of Kafka. Needs no database.",
            "publisher.commands.check_cluster:check_cluster",
        ),
        DeferredCommand(
            "status",
            "Show the progress of every lane. Exits with 1 if a lane is stopped, or has undelivered rows and no holder.",
            "publisher.commands.status:status",
        ),
        DeferredCommand(
            "console",
            "Serve the console, read-only pages about the outbox, without delivering anything, until SIGTERM or SIGINT.",
            "publisher.commands.console:console",
        ),
        DeferredCommand(
            "audit",
            "Prove that ledger, rows and deliveries agree, with --archive also that the archive is unaltered, with "
            "--kafka that every output is in its topic exactly once.",
            "publisher.commands.audit:audit",
        ),
        DeferredCommand(
            "trace",
            "Follow a session key, an outbox-id or a record in Kafka: its outputs, their state, and each one's place in Kafka. Reads only.",
            "publisher.commands.trace:trace",
        ),
        DeferredCommand(
            "find",
            "`publisher trace SESSION_KEY` by its former name, which the next release does not have.",
            "publisher.commands.trace:find",
            hidden=True,
        ),
        DeferredCommand(
            "locate",
            "`publisher trace OUTBOX_ID|TOPIC/PARTITION/OFFSET` by its former name, which the next release does not have.",
            "publisher.commands.trace:locate",
            hidden=True,
        ),
        DeferredCommand(
            "lanes",
            "Show who runs which lanes, or change how many there are.",
            "publisher.commands.lanes:app",
        ),
        DeferredCommand(
            "resume",
            "Let stopped lanes continue from Kafka's or Postgres' position, or from a batch on.",
            "publisher.commands.resume:resume",
        ),
        DeferredCommand(
            "parked",
            "List, show, requeue or discard rows that Kafka refuses or whose topic does not exist.",
            "publisher.commands.rows.parked:app",
        ),
        DeferredCommand(
            "retention",
            "Drop old delivered outputs, prune the ledger.",
            "publisher.commands.rows.retention:app",
        ),
        DeferredCommand(
            "erase",
            "Erase all that the outbox keeps of session keys, and the job's cache on this machine. Cannot be undone.",
            "publisher.commands.rows.erase:erase",
        ),
        DeferredCommand(
            "replay",
            "Send delivered outputs once more, exactly once each.",
            "publisher.commands.replay.cli:app",
        ),
    ],
)


def main() -> None:
    """Run the command line."""
    run_command(app, "publisher")

"""The command line: publisher/commands put together."""

from publisher.commands import audit, find, lanes, parked, replay, resume, retention, run, status
from service.commands.main import command_line, run_command

app = command_line("Deliver the outbox to Kafka, exactly once.")
app.command()(run.run)
app.command()(status.status)
app.command()(audit.audit)
app.command()(find.find)
app.add_typer(lanes.app, name="lanes")
app.command()(resume.resume)
app.add_typer(parked.app, name="parked")
app.add_typer(retention.app, name="retention")
app.add_typer(replay.app, name="replay")


def main() -> None:
    """Run the command line."""
    run_command(app, "publisher")

"""`spark-job clock`: clock records for quiet input partitions. The job itself only reads them, so that the input alone
decides when a session times out."""

import threading
import time
from collections.abc import Sequence
from typing import Annotated

import structlog
import typer

from service.commands.options import Config, Json
from service.commands.output import console, error_console, print_json
from service.commands.times import parse_pause
from service.errors import SettingsError, UnavailableError
from service.kafka.reading import NamedPartition
from service.lifecycle.shutdown import stop_on_handled_signals
from service.observability import logs
from service.settings import Settings, load_settings
from spark_job.input.clock_records import NEEDS, QuietPartitions, write_clock_records
from spark_job.input.topics import KafkaInput, kafka_input

_log = structlog.get_logger()


def clock(
    config: Config = None,
    as_json: Json = False,
    quiet_for: Annotated[
        str,
        typer.Option(
            help="How long a partition must have had no new record: 80s, 5m. It must exceed the longest delay of an event on its way. "
            "Default: [session] timeout_s + grace_s."
        ),
    ] = "",
    every: Annotated[
        str,
        typer.Option(help="Run until SIGTERM or SIGINT, and check the partitions at this interval: 10s, 1m."),
    ] = "",
) -> None:
    """Write a clock record into each quiet input partition, so that silence ends its sessions.

    Without --every it watches the partitions for as long as --quiet-for, writes once and ends. Needs [session] clock_records = true, which
    the job must run with already, and the right to write to the input topics.
    """
    settings = load_settings(config)
    logs.configure(settings.log)
    session = settings.session
    if not session.clock_records:
        raise SettingsError(
            "[session] clock_records is not set: to the job each clock record would be a dead letter `malformed`. Set it, start the job "
            "with --accept-changed-assembly, then run this command"
        )
    quiet_for_s = parse_pause(quiet_for, "--quiet-for") if quiet_for else session.timeout_s + session.grace_s
    every_s = parse_pause(every, "--every") if every else None
    if every_s is not None and as_json:
        raise SettingsError(
            "--json prints its document when the command ends, and with --every only a signal ends it: give only one of the two"
        )
    stop = threading.Event()
    # Signals are handled, not blocked: imported libraries may have started threads already, in which they would not be blocked.
    with stop_on_handled_signals(stop), kafka_input(settings, NEEDS) as kafka:
        rounds = ClockRounds(settings, kafka, quiet_for_s)
        if every_s is not None:
            _run(rounds, every_s, stop)
            return
        rounds.look()
        with error_console().status(f"watching the input partitions for {quiet_for_s:g} s"):
            if stop.wait(quiet_for_s):
                return
        written = rounds.look()
    if as_json:
        print_json({"written": [_row(*each) for each in written], "partitions": rounds.partitions})
    else:
        for topic, partition, offset in written:
            console().print(f"{topic}/{partition}: clock record at offset {offset}")
        console().print(f"clock records written into {len(written)} of {rounds.partitions} partitions")


class ClockRounds:
    """Checks all input partitions, and writes to those that are quiet."""

    def __init__(self, settings: Settings, kafka: KafkaInput, quiet_for_s: float) -> None:
        self._settings, self._kafka = settings, kafka
        self._quiet = QuietPartitions(quiet_for_s)
        self.partitions = 0
        """Number of partitions at the last check."""

    def look(self) -> list[tuple[str, int, int]]:
        """Check once; return (topic, partition, offset) of each clock record written. Raises as KafkaInput and write_clock_records do."""
        topics = self._kafka.describe()
        names = topics.names
        ends = {
            (names[where.topic_id], where.partition): end
            for where, end in self._kafka.bounds(topics, "latest").items()
        }
        self.partitions = len(ends)
        quiet = self._quiet.look(ends, time.monotonic())
        return self._write(quiet) if quiet else []

    def _write(self, quiet: Sequence[NamedPartition]) -> list[tuple[str, int, int]]:
        offsets = write_clock_records(self._settings.kafka, quiet)
        self._quiet.wrote(offsets, time.monotonic())
        return sorted((*place, offset) for place, offset in offsets.items())


def _run(rounds: ClockRounds, every_s: float, stop: threading.Event) -> None:
    while not stop.is_set():
        try:
            written = rounds.look()
        except UnavailableError as error:
            _log.warning("clock_records_not_written", reason=str(error))
        else:
            if written:
                _log.info("clock_records_written", partitions=len(written), of=rounds.partitions)
        stop.wait(every_s)


def _row(topic: str, partition: int, offset: int) -> dict[str, object]:
    return {"topic": topic, "partition": partition, "offset": offset}

"""`python -m examples.demo`, which `make demo` runs.

The exit code is 0 for a clean verdict, 1 for any difference, 2 when the demo could not be carried through, 130 after
Ctrl-C before the verdict. Nothing is left behind but, after a failure, the services' logs.
"""

import shlex
import signal
from contextlib import suppress
from types import FrameType
from typing import Annotated

import psycopg
import typer
from confluent_kafka import KafkaException
from rich.console import Console

from devstack.processes.errors import DevstackError, tail
from examples.clickstream.dataset import DatasetError
from examples.clickstream.producer import ProduceError
from examples.clickstream.reading import ReadError
from examples.demo import report
from examples.demo.run import Demo, DemoError
from service.errors import OutboxError

_PLAIN_WIDTH = 140
_EXPECTED_ERRORS = (
    DemoError,
    DevstackError,
    DatasetError,
    ProduceError,
    ReadError,
    OutboxError,
    KafkaException,
    psycopg.Error,
)


def main(
    keep: Annotated[
        bool, typer.Option("--keep", help="Keep everything up at the end, to follow a session by hand.")
    ] = False,
) -> None:
    """Play a real stream through Kafka, Spark, the outbox and the publisher, with two kills on the way."""
    signal.signal(signal.SIGTERM, _end)
    console = Console()
    if not console.is_terminal:
        console = Console(width=_PLAIN_WIDTH)
    demo = Demo(console)
    try:
        raise typer.Exit(_carry_through(demo, console, keep))
    except _EXPECTED_ERRORS as error:
        console.print(f"demo: {type(error).__name__}: {error}", style="red", markup=False, soft_wrap=True)
        _tell_logs(demo, console)
        raise typer.Exit(2) from None
    except KeyboardInterrupt:
        console.print("demo: interrupted; stopping everything")
        raise typer.Exit(130) from None
    finally:
        demo.close()


def _carry_through(demo: Demo, console: Console, keep: bool) -> int:
    with demo.display:
        demo.start()
        demo.play()
        demo.stop_services()
        demo.display.say("reading all topics back and computing from the input what must be there")
        result = report.examine(demo.kafka, demo.outbox)
    report.tell(console, result, demo.outbox, demo.dsn)
    if not result.verdict.clean:
        _tell_logs(demo, console)
    if keep:
        demo.go_on()
        console.print("\nThe servers and both services stay up until Ctrl-C. In another terminal:")
        print("source .venv/bin/activate")
        for name, value in demo.exports().items():
            print(f"export {name}={value}")
        print(f"The console, in a browser: {demo.console_address()}")
        console.print("Ask with SQL, as a login that may only read (docs/audit.md has the questions):")
        print(f"devstack psql {shlex.quote(demo.auditor_dsn())}")
    console.print()
    print(result.last_line(), flush=True)
    if keep:
        with suppress(KeyboardInterrupt):
            signal.pause()
    return 0 if result.verdict.clean else 1


def _tell_logs(demo: Demo, console: Console) -> None:
    for service in demo.services:
        console.print(tail(service.log), style="dim", markup=False, highlight=False, soft_wrap=True)
    if demo.services:
        console.print(f"The services' whole logs are in {demo.keep_logs()}", soft_wrap=True)


def _end(number: int, frame: FrameType | None) -> None:
    # As Ctrl-C: the way out goes through the clean-up.
    raise KeyboardInterrupt


if __name__ == "__main__":
    typer.run(main)

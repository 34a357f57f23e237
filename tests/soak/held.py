"""`python -m tests.soak.held`: hundreds of failed attempts, then thousands of batches, in one process; fails where it holds ever more."""

import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated

import typer

from db.migrate import upgrade
from devstack.stack import Stack
from tests.support.held.figures import Held, grown, measurements
from tests.support.processes.environment import without_settings
from tests.support.servers.memory import folder_in_memory

_PARTS = 10
"""Measurements of each kind. The first ones are made while caches still fill."""


@dataclass(frozen=True)
class Servers:
    """Of one run of the job: two outboxes, Kafka, and a folder for the job's files."""

    dsns: list[str]
    kafka: str
    folder: Path


@contextmanager
def servers() -> Iterator[Servers]:
    """Start servers whose data, as the job's, lies in memory."""
    with (
        tempfile.TemporaryDirectory(prefix="outbox-") as disk,
        folder_in_memory(Path(disk)) as folder,
        Stack.local(folder, fast=True) as stack,
    ):
        dsns = [stack.create_database(f"test_held_{number}") for number in (1, 2)]
        for dsn in dsns:
            upgrade(dsn)
        own = folder / "job"
        own.mkdir()
        yield Servers(dsns, stack.kafka.bootstrap_servers, own)


def run(of: Servers, **numbers: int) -> dict[str, Held]:
    """Run the job, show each measurement as it comes, and return all of them."""
    where = [*of.dsns, of.kafka, str(of.folder)]
    options = [
        text for name, value in numbers.items() for text in (f"--{name.replace('_', '-')}", str(value))
    ]
    command = [sys.executable, "-m", "tests.support.held.job", *where, *options]
    lines = []
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=without_settings()) as process:
        assert process.stdout is not None
        for line in process.stdout:
            lines.append(line)
            for after, held in measurements(line).items():
                print(f"{after}: {held}", flush=True)
    assert process.returncode == 0, "".join(lines[-50:])
    return measurements("".join(lines))


def table(found: dict[str, Held]) -> str:
    """Return the measurements as a table, a column each."""
    names = list(found)
    rows = [f"| held after | {' | '.join(names)} |", f"| --- |{' ---: |' * len(names)}"]
    rows += [
        f"| {each.name.replace('_', ' ')} | {' | '.join(f'{getattr(found[name], each.name):,}' for name in names)} |"
        for each in fields(Held)
    ]
    return "\n".join(rows)


def main(
    attempts: Annotated[int, typer.Option(min=_PARTS, help="That fail.")] = 200,
    batches: Annotated[int, typer.Option(min=_PARTS, help="A few a second.")] = 10_000,
) -> None:
    """Measure, print a table, and exit 1 where a figure grows."""
    failed = []
    each, every = attempts // _PARTS, batches // _PARTS
    with servers() as of:
        found = run(of, attempts=attempts, warm=each, every=each, batches=batches, batches_every=every)
    print(table(found))
    for what, number in (("attempts", each), ("batches", every)):
        failed += grown(*(found[f"{part * number} {what}"] for part in (2, _PARTS)))
    if failed:
        sys.exit(f"not flat: {'; '.join(failed)}")


if __name__ == "__main__":
    typer.run(main)

"""Rounds of a measurement that may fail one by one: the others are taken all the same, and the end lists what failed."""

import os
import traceback
from collections.abc import Iterator
from contextlib import contextmanager

import typer
from rich.console import Console

screen = Console(stderr=True)


class FailedRounds:
    """What came to nothing, and why."""

    def __init__(self) -> None:
        self.failed: list[str] = []

    @contextmanager
    def tolerated(self, what: str) -> Iterator[float]:
        """Take a round, which may fail without the others. Yields the machine's load average before it."""
        try:
            yield os.getloadavg()[0]
        # A benchmark ends by SystemExit where it cannot go on. Whatever it was: hours of other rounds are not given up for it.
        except (Exception, SystemExit) as error:  # noqa: BLE001 - see above
            traceback.print_exc()
            self.add(what, error)

    def add(self, what: str, why: object) -> None:
        """Note a round that failed."""
        kind = f"{type(why).__name__}: " if isinstance(why, BaseException) else ""
        self.failed.append(f"{what}: {kind}{why}")
        screen.print(f"{what} failed: {kind}{why}", markup=False)

    def finish(self) -> None:
        """List what failed. Raises typer.Exit with code 1 where anything did."""
        if self.failed:
            screen.print(f"{len(self.failed)} failed, and are taken when this is called again:")
            for one in self.failed:
                screen.print(f"  {one}", markup=False)
            raise typer.Exit(1)


def announce(expected_s: float, rounds: int) -> None:
    """Say how long the rounds that are missing will take, on the machine that docs/performance.md names, with nothing else on it."""
    if not rounds:
        screen.print("Nothing is missing: all rounds are in the file.")
    else:
        screen.print(f"{rounds} {'round' if rounds == 1 else 'rounds'}: about {minutes(expected_s)}")


def minutes(seconds: float) -> str:
    """A duration for people: `40 s`, `7 minutes`."""
    return f"{seconds:.0f} s" if seconds < 90 else f"{seconds / 60:.0f} minutes"

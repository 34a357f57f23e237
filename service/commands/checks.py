"""Checks of a server before it is used: their results, how the commands of both services show them, and the exit code."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, Literal, NamedTuple, TypeVar

import typer
from rich.text import Text

from service.commands.output import console, print_json
from service.commands.progress import progress_bar
from service.commands.tables import Table
from service.errors import RefusedError

S = TypeVar("S")

Outcome = Literal["ok", "warning", "failed", "not supported"]
_STYLES: dict[Outcome, str] = {"ok": "green", "warning": "yellow", "failed": "red", "not supported": "red"}
_UNUSABLE: tuple[Outcome, ...] = ("failed", "not supported")


class CheckAnswer(NamedTuple):
    """The result of a check. `remedy`: what to do about it, empty if all is well.

    `warning`: both services work, but a promise is weaker or something could not be checked. `not supported`: the server lacks the feature.
    """

    outcome: Outcome
    found: str
    remedy: str = ""


@dataclass(frozen=True, slots=True)
class ServerCheck(Generic[S]):
    """One thing that the services rely on. `ask` reads it from the server and judges it."""

    name: str
    needed_for: str
    ask: Callable[[S], CheckAnswer]


class CheckResult(NamedTuple):
    """A check and its answer."""

    name: str
    needed_for: str
    outcome: Outcome
    found: str
    remedy: str


def run_checks(
    checks: Sequence[ServerCheck[S]],
    subject: S,
    explain: Callable[[Exception], CheckAnswer | None],
    *,
    quiet: bool,
    stopped: Callable[[], bool] = lambda: False,
) -> list[CheckResult]:
    """Run the checks one after the other and return their results. A progress bar names the current check unless `quiet`.

    `explain` returns a check's result for an error of the server's client, or None for an error that concerns all checks or is a bug.
    `stopped` is called after each check; True skips the remaining checks.
    """
    found = []
    with progress_bar(quiet=quiet) as progress:
        task = progress.add_task("checking", total=len(checks))
        for check in checks:
            progress.update(task, description=check.name)
            try:
                answer = check.ask(subject)
            except Exception as error:
                explained = explain(error)
                if explained is None:
                    raise
                answer = explained
            found.append(CheckResult(check.name, check.needed_for, *answer))
            progress.advance(task)
            if stopped():
                break
    return found


def show_results(found: Sequence[CheckResult], *, json: bool) -> None:
    """Print a line for each check, and below it the remedy unless the outcome is ok; or print JSON.

    Raises typer.Exit if the server is unusable.
    """
    usable = not any(each.outcome in _UNUSABLE for each in found)
    if json:
        print_json({"usable": usable, "checks": [each._asdict() for each in found]})
    else:
        table = Table(["check", "result", "needed for", "found"], wrap_last=True)
        for each in found:
            result = Text(each.outcome, _STYLES[each.outcome])
            table.add(each.name, result, each.needed_for, each.found, note=each.remedy)
        table.print(console())
    if not usable:
        raise typer.Exit(RefusedError.exit_code)

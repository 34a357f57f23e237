"""Options that several commands have, what they mean, and how a measurement becomes a command that has them."""

import inspect
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any, Concatenate, ParamSpec, get_type_hints

import typer

from benchmarks.suite.results import RESULTS

P = ParamSpec("P")

Names = Annotated[
    str,
    typer.Option(
        "--contenders", help="Who is measured, in turn: names with commas between (see benchmarks/README.md)."
    ),
]
Rounds = Annotated[int, typer.Option(min=1, help="Rounds that there shall be; those in the file count.")]
Folder = Annotated[Path, typer.Option("--results", help="Folder of the JSON files.")]
Baseline = Annotated[
    Path | None,
    typer.Option(help="Another checkout (a git worktree) to measure in turn, as `before`.", exists=True),
]
Setting = Annotated[
    list[str] | None,
    typer.Option(
        help="A further setting of ours, such as JOB__MAX_EVENTS_PER_BATCH=300000; may be repeated."
    ),
]
Partitions = Annotated[int, typer.Option(min=1, help="Partitions of the input topic.")]


@dataclass(frozen=True)
class Asked:
    """The options of every measurement that compares contenders."""

    who: Names = "ours"
    rounds: Rounds = 1
    partitions: Partitions = 4
    baseline: Baseline = None
    setting: Setting = None
    folder: Folder = RESULTS

    @property
    def names(self) -> list[str]:
        """Of the contenders."""
        return [one.strip() for one in self.who.split(",") if one.strip()]

    @property
    def settings(self) -> dict[str, str]:
        """Further ones of ours, environment names without OUTBOX_. Raises typer.BadParameter."""
        found = {}
        for one in self.setting or []:
            name, is_set, value = one.partition("=")
            if not is_set:
                raise typer.BadParameter(f"--setting {one}: NAME=VALUE is expected")
            found[name] = value
        return found

    def parameters(self, **own: object) -> dict[str, object]:
        """Return what rounds must have had in common to be compared: a measurement's own, the partitions, the settings."""
        return {**own, "partitions": self.partitions, **self.settings}


def measurement(
    app: typer.Typer, name: str, *, who: str, rounds: int = 1
) -> Callable[[Callable[Concatenate[Asked, P], None]], Callable[Concatenate[Asked, P], None]]:
    """Make a function whose first parameter is an `Asked` a command: its other parameters are options, and the fields of `Asked` follow.

    `who`, `rounds`: their defaults.
    """
    defaults = asdict(Asked(who=who, rounds=rounds))
    common = get_type_hints(Asked, include_extras=True)

    def register(
        function: Callable[Concatenate[Asked, P], None],
    ) -> Callable[Concatenate[Asked, P], None]:
        hints = get_type_hints(function, include_extras=True)
        own = list(inspect.signature(function).parameters.values())[1:]
        options = [
            *(each.replace(kind=each.KEYWORD_ONLY, annotation=hints[each.name]) for each in own),
            *(
                inspect.Parameter(
                    each, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=common[each]
                )
                for each, default in defaults.items()
            ),
        ]

        def run(**given: Any) -> None:
            asked = Asked(**{each: given.pop(each) for each in defaults})
            function(asked, **given)  # type: ignore[call-arg]

        vars(run)["__signature__"] = inspect.Signature(options)
        app.command(name, help=function.__doc__)(run)
        return function

    return register


def numbers(text: str) -> list[float]:
    """Numbers with commas between. Raises typer.BadParameter."""
    try:
        return [float(one) for one in text.split(",")]
    except ValueError:
        raise typer.BadParameter(f"{text!r}: numbers with commas between are expected") from None

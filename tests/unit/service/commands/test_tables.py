"""Tables of commands: nothing is cut, a pipe gets one line a row, a narrow terminal a block for each."""

import io
from datetime import UTC, datetime

import pytest
from rich.console import Console
from rich.text import Text

from service.commands.output import console, print_json
from service.commands.tables import Table, print_fields
from service.printable import printable

LONG = "x" * 300


def terminal(width: int) -> Console:
    """A terminal of that width that keeps what it is sent."""
    return Console(
        file=io.StringIO(),
        width=width,
        force_terminal=True,
        color_system=None,
        emoji=False,
        markup=False,
        highlight=False,
        soft_wrap=True,
    )


def shown(out: Console) -> str:
    assert isinstance(out.file, io.StringIO)
    return out.file.getvalue()


def letters(*, key: str = "visitor-17") -> Table:
    table = Table(["id", "reason", "events", "key"])
    table.add("1", "timed_out", 1_200, key, note="closed at 17", block='{\n"a": 1}')
    table.add("12", "malformed", None, None)
    return table


def test_columns_are_aligned_and_numbers_to_the_right() -> None:
    out = terminal(80)
    letters().print(out)
    assert shown(out).splitlines() == [
        "id  reason     events  key",
        "1   timed_out   1,200  visitor-17",
        "  closed at 17",
        "  {",
        '  "a": 1}',
        "12  malformed          ",
    ]


def test_a_pipe_gets_whole_values_on_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    letters(key=LONG).print(console())
    said = capsys.readouterr().out
    assert f"timed_out   1,200  {LONG}\n" in said
    assert "…" not in said


def test_a_terminal_that_is_too_narrow_gets_a_block_for_each_row() -> None:
    out = terminal(30)
    letters().print(out)
    said = shown(out)
    assert said.startswith(
        "id      1\nreason  timed_out\nevents  1,200\nkey     visitor-17\n  closed at 17\n"
    )
    assert max(map(len, said.splitlines())) <= 30


def test_prose_is_wrapped_on_a_terminal_and_whole_in_a_pipe(capsys: pytest.CaptureFixture[str]) -> None:
    question = "Does each stream batch begin where the one before it in its generation ended?"
    table = Table(["check", "result", "question"], wrap_last=True)
    table.add("stream_continuity", Text("ok", "green"), question)
    out = terminal(60)
    table.print(out)
    first, second, *_ = shown(out).splitlines()[1:]
    assert first.startswith("stream_continuity  ok      Does each")
    assert second.startswith(" " * 27)
    assert max(map(len, shown(out).splitlines())) <= 60
    table.print(console())
    assert question in capsys.readouterr().out


def test_fields_leave_out_what_is_not_there() -> None:
    out = terminal(80)
    print_fields(
        out, [("state", "open"), ("since", datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)), ("ended", None)]
    )
    assert shown(out) == "state  open\nsince  2026-01-02 03:04:05\n"


def test_a_value_cannot_change_the_terminal_or_the_table(capsys: pytest.CaptureFixture[str]) -> None:
    table = Table(["key"])
    table.add("a\x1b[31m\nb\u202e[red]:smile:")
    table.print(console())
    assert capsys.readouterr().out == "key\na\\x1b[31m\\nb\\u202e[red]:smile:\n"
    assert printable("a\n\tb\r", keep="\n\t") == "a\n\tb\\r"


# Without the five control characters that rich's Text leaves out of what it is made of.
HOSTILE = "a\x1b]0;x\x9b31m\x85\u202e\u2028"
SHOWN = "a\\x1b]0;x\\x9b31m\\x85\\u202e\\u2028"


def test_styled_text_and_the_names_of_fields_cannot_change_the_terminal(
    capsys: pytest.CaptureFixture[str],
) -> None:
    print_fields(console(), [(HOSTILE, "v"), ("job", Text("dead", "red").append(f" on {HOSTILE}"))])
    table = Table(["c"])
    table.add(Text(HOSTILE, "red"))
    table.print(console())
    console().print(Text(HOSTILE), HOSTILE)
    assert capsys.readouterr().out.splitlines() == [
        f"{SHOWN}  v",
        f"{'job':<{len(SHOWN)}}  dead on {SHOWN}",
        "c",
        SHOWN,
        f"{SHOWN} {SHOWN}",
    ]


def test_json_is_one_indented_document(capsys: pytest.CaptureFixture[str]) -> None:
    print_json({"at": datetime(2026, 1, 1, tzinfo=UTC), 1: ["é"], "none": None})
    assert capsys.readouterr().out == (
        '{\n  "at": "2026-01-01T00:00:00+00:00",\n  "1": [\n    "é"\n  ],\n  "none": null\n}\n'
    )

"""No foreign text acts on the terminal of whoever reads it, whichever command or log prints it."""

import ast
import io
import json

import pytest
import structlog

from service import probe
from service.commands.main import run_command
from service.commands.output import console, document, error_console
from service.errors import UnavailableError
from service.observability import logs
from service.printable import printable, printable_json, shown_bytes
from service.settings import LogSettings
from tests.support.paths import ROOT

# A colour, a title, a C1 control sequence, a turned line, a hidden mark, half a character.
EVIL = "key \x1b[31m \x1b]0;title\x07 \x9b2J \u202ereversed \u200b \r"


def assert_harmless(shown: str) -> None:
    assert [each for each in shown if not each.isprintable() and each not in "\n\t"] == []
    assert "reversed" in shown


def test_text_says_what_it_was() -> None:
    assert printable(EVIL) == ("key \\x1b[31m \\x1b]0;title\\x07 \\x9b2J \\u202ereversed \\u200b \\r")
    assert printable("Grüße, 世界 🎉\xa0") == "Grüße, 世界 🎉\xa0"
    assert printable("half \ud800") == "half \\ud800"
    assert printable("a\nb", keep="\n") == "a\nb"


def test_json_is_harmless_and_says_the_same() -> None:
    value = {"key": EVIL, "tag": "\U000e0041", "text": "世界 🎉"}
    shown = document(value)
    assert_harmless(shown)
    assert json.loads(shown) == value
    assert printable_json('"plain"') == '"plain"'


@pytest.mark.parametrize("screen", [console, error_console])
def test_a_command_prints_nothing_that_acts(screen: object, capsys: pytest.CaptureFixture[str]) -> None:
    assert callable(screen)
    screen().print(f"session key {EVIL}")
    out, err = capsys.readouterr()
    assert_harmless(out + err)


def test_the_error_that_ends_a_command_is_harmless(capsys: pytest.CaptureFixture[str]) -> None:
    def fail() -> None:
        raise UnavailableError(f"{EVIL}\nsecond line")

    with pytest.raises(SystemExit) as ended:
        run_command(fail, "publisher")
    assert ended.value.code == UnavailableError.exit_code
    error = capsys.readouterr().err
    assert_harmless(error)
    assert error.endswith("\nsecond line\n")


def test_the_traceback_of_a_bug_is_harmless(capsys: pytest.CaptureFixture[str]) -> None:
    def fail() -> None:
        raise RuntimeError(f"{EVIL}\nsecond line")

    with pytest.raises(SystemExit) as ended:
        run_command(fail, "publisher")
    assert ended.value.code == 1
    error = capsys.readouterr().err
    assert_harmless(error)
    assert error.startswith("Traceback (most recent call last):\n")
    assert error.endswith("\nsecond line\n")


def test_what_a_health_check_prints_is_harmless(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(probe, "probe", lambda url: (1, f"{url}: {EVIL}"))
    assert probe.main(["http://localhost:1/readyz"]) == 1
    assert_harmless(capsys.readouterr().out)


@pytest.mark.parametrize("form", ["text", "json"])
def test_a_log_line_is_harmless(form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.StringIO()
    monkeypatch.setattr("sys.stderr", stream)
    logs.configure(LogSettings.model_validate({"format": form}))
    try:
        structlog.get_logger().warning("parked", reason=EVIL, keys=[EVIL], exc_info=ValueError(EVIL))
    finally:
        structlog.reset_defaults()
    assert_harmless(stream.getvalue())


# What these print is no foreign text, or is made harmless beside the call.
OWN_WORDS = {
    "db/commands.py",
    "db/dbt_sources.py",
    "db/dump.py",
    "publisher/commands/audit.py",
    "service/commands/main.py",
    "service/commands/output.py",
    "service/commands/version.py",
    "service/configuration.py",
    "service/observability/logs.py",
    "service/probe.py",
    "spark_job/commands/decode.py",
    "spark_job/commands/savepoint.py",
    "spark_job/spark/jars.py",
}


def test_no_other_module_writes_to_a_terminal_by_itself() -> None:
    found = set()
    for folder in ("publisher", "spark_job", "service", "db"):
        for path in (ROOT / folder).rglob("*.py"):
            calls = (
                node for node in ast.walk(ast.parse(path.read_text("utf-8"))) if isinstance(node, ast.Call)
            )
            names = {ast.unparse(call.func) for call in calls}
            if names & {"print", "sys.stdout.write", "sys.stderr.write", "typer.echo", "Console"}:
                found.add(str(path.relative_to(ROOT)))
    assert found == OWN_WORDS


@pytest.mark.parametrize(
    ("value", "shown"), [(b"a\xc3\xa9", "aé"), (b"\xff\x00", "hex ff00"), (b"", ""), (None, "null")]
)
def test_bytes_are_text_or_hex(value: bytes | None, shown: str) -> None:
    assert shown_bytes(value) == shown

"""A command acts on the session keys that it was given, and on no other ones."""

import json
from pathlib import Path

import pytest

from service.commands.session_keys import file_text, is_line, read_keys
from service.errors import SettingsError

ODD = ["plain", "\ufeffkey", "key\r", "two\nlines", '"quoted"', " spaces ", "ü\u2028x", "\ufeff"]


def test_keys_come_once_each_from_options_and_file(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    file.write_bytes('b\na\n\nb\nü\u2028x\n"q"\n x\r y'.encode())
    assert read_keys(["a", "c"], file) == (" x\r y", '"q"', "a", "b", "c", "ü\u2028x")
    assert read_keys([], None) is None
    file.write_bytes(b"\n")
    with pytest.raises(SettingsError, match="name no session key"):
        read_keys([], file)
    with pytest.raises(SettingsError, match="cannot be read"):
        read_keys([], tmp_path / "absent")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("\ufeffa\nb\n", "a byte order mark begins it"),
        ("a\r\nb\r\n", "lines end with a carriage return"),
        ("a\nb\r", "lines end with a carriage return"),
    ],
)
def test_what_may_be_an_editor_s_or_a_key_s_is_refused(tmp_path: Path, text: str, said: str) -> None:
    """Without it the file would name another key, of which nothing is there: `publisher erase` would say that nothing is left."""
    file = tmp_path / "keys.txt"
    file.write_bytes(text.encode())
    with pytest.raises(SettingsError, match=rf"keys\.txt': {said}.*\.jsonl"):
        read_keys([], file)


@pytest.mark.parametrize("text", ['"a"\n', '"a"\n\n"b\\u00e9"', '"a"\r\n'])
@pytest.mark.parametrize("name", ["keys.json", "keys"])
def test_json_strings_in_a_file_of_another_name_are_refused(tmp_path: Path, name: str, text: str) -> None:
    """Taken as they are, they would name other keys, of which nothing is there."""
    file = tmp_path / name
    file.write_bytes(text.encode())
    with pytest.raises(SettingsError, match=r"each line is a JSON string\..* name the file \.jsonl"):
        read_keys([], file)


@pytest.mark.parametrize("ascii_only", [True, False])
@pytest.mark.parametrize("suffix", ["jsonl", "JSONL"])
def test_a_jsonl_file_takes_any_key(tmp_path: Path, ascii_only: bool, suffix: str) -> None:
    file = tmp_path / f"keys.{suffix}"
    lines = [json.dumps(key, ensure_ascii=ascii_only) for key in ODD]
    file.write_bytes(("\r\n".join(lines) + "\r\n\n").encode())
    assert read_keys([], file) == tuple(sorted(ODD))


@pytest.mark.parametrize("name", ["keys.txt", "keys.jsonl"])
def test_what_is_written_for_a_command_names_the_same_keys(tmp_path: Path, name: str) -> None:
    """The audit names keys that no line holds on the command line."""
    keys = [key for key in ODD if is_line(key) or name == "keys.jsonl"]
    file = tmp_path / name
    file.write_text(file_text(keys, file), "utf-8", newline="")
    assert read_keys([], file) == tuple(sorted(keys))
    assert len(keys) >= 3


@pytest.mark.parametrize("line", ["secret", "5", "null", '["secret"]', '"secret', '\ufeff"secret"'])
def test_a_jsonl_file_has_strings_only(tmp_path: Path, line: str) -> None:
    file = tmp_path / "keys.jsonl"
    file.write_text(f'"a"\n{line}\n', "utf-8")
    with pytest.raises(SettingsError, match="line 2 is no JSON string") as refused:
        read_keys([], file)
    assert "secret" not in str(refused.value)


def test_a_key_that_no_event_can_have_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "keys.jsonl"
    file.write_text('"\\ud800"')
    for keys, path in ((["a\udcff"], None), ([], file)):
        with pytest.raises(SettingsError, match="is UTF-8 text"):
            read_keys(keys, path)
    with pytest.raises(SettingsError, match="no NUL"):
        read_keys(["a\0"], None)

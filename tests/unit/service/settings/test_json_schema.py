"""service/outbox.schema.json is what the settings are, and takes every settings file of the repository."""

import json
import re
import tomllib
from datetime import datetime
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from pydantic import SecretStr, ValidationError

from service.commands.output import document
from service.configuration import LEFT_OUT
from service.json_schema import NAME, settings_schema
from service.settings import Settings, known_keys
from spark_job.commands.init import init
from tests.support.paths import ROOT

SCHEMA = ROOT / "service" / NAME
FILES = sorted(
    path.relative_to(ROOT) for top in ("deploy", "examples") for path in (ROOT / top).rglob("outbox*.toml")
)
_BLOCK = re.compile(r"^```toml\n(.*?)^```", re.MULTILINE | re.DOTALL)
_COMMENTED = re.compile(r"^#(?=\w+ = )", re.MULTILINE)


def blocks() -> list[tuple[str, str]]:
    """(page, text) of each block of settings on the pages."""
    pages = [
        ROOT / "README.md",
        *sorted((ROOT / "docs").glob("*.md")),
        *sorted((ROOT / "examples").rglob("*.md")),
    ]
    found = [(page.name, text) for page in pages for text in _BLOCK.findall(page.read_text("utf-8"))]
    return [
        (page, text) for page, text in found if tomllib.loads(text).keys() <= Settings.model_fields.keys()
    ]


def refused(values: dict[str, Any]) -> list[str]:
    """Each thing that the schema does not take, as an editor shows it."""
    # Editors give the schema times as texts.
    given = json.loads(json.dumps(values, default=datetime.isoformat))
    return [error.message for error in jsonschema.Draft7Validator(settings_schema()).iter_errors(given)]


def test_the_file_is_what_the_settings_generate() -> None:
    assert SCHEMA.read_text("utf-8") == document(settings_schema()), "run `make docs`"


def test_it_is_a_schema_of_the_draft_that_editors_read_for_toml() -> None:
    jsonschema.Draft7Validator.check_schema(settings_schema())
    text = json.dumps(settings_schema())
    assert "$ref" not in text
    assert "null" not in text


def test_it_has_every_key_with_its_meaning_and_no_hidden_secret() -> None:
    sections = settings_schema()["properties"]
    found = {
        f"{name}.{key}": value for name, each in sections.items() for key, value in each["properties"].items()
    }
    assert sorted(found) == sorted(key for key in known_keys() if not key.startswith(f"{LEFT_OUT}."))
    assert [key for key, value in found.items() if not value["description"]] == []
    assert found["postgres.dsn"]["default"] == "postgresql://localhost/outbox"
    assert [key for key, value in found.items() if value.get("writeOnly")] == [
        "postgres.dsn",
        "console.token",
        "console.dsn",
        "retention.dsn",
    ]


@pytest.mark.parametrize("file", FILES, ids=str)
def test_it_takes_each_settings_file_of_the_repository(file: Path) -> None:
    assert refused(tomllib.loads((ROOT / file).read_text("utf-8"))) == []


def test_there_are_files_and_blocks_to_look_at() -> None:
    assert len(FILES) >= 3
    assert len(blocks()) >= 5


@pytest.mark.parametrize(("page", "text"), blocks())
def test_it_takes_what_the_pages_show(page: str, text: str) -> None:
    assert refused(tomllib.loads(text)) == []


def test_it_takes_what_init_writes_and_the_file_names_it(tmp_path: Path) -> None:
    init(tmp_path)
    text = (tmp_path / "outbox.toml").read_text("utf-8")
    named = re.match(r"#:schema (\S+)\n", text)
    assert named is not None
    assert (tmp_path / named[1]).read_text("utf-8") == SCHEMA.read_text("utf-8")
    for each in (text, _COMMENTED.sub("", text)):
        assert refused(tomllib.loads(each)) == []


@pytest.mark.parametrize("key", [key for key in known_keys() if not key.startswith(f"{LEFT_OUT}.")])
def test_it_takes_each_default(key: str) -> None:
    section, _, name = key.partition(".")
    default = getattr(getattr(Settings(), section), name)
    if isinstance(default, SecretStr):
        default = default.get_secret_value()
    assert refused({section: {} if default is None else {name: default}}) == []


@pytest.mark.parametrize(
    "values",
    [
        {"source": {"starting_offsets": "latest"}},
        {"source": {"starting_offsets": datetime.fromisoformat("2026-11-24T10:00:00+00:00")}},
        {"source": {"starting_offsets": {"orders": {"0": 120, "1": 95}}}},
        {"session": {"entry": ["item_added", "item_removed"]}},
        {"job": {"latency": "lowest"}},
        {"job": {"latency": 250}},
        {
            "kafka": {
                "options": {"linger.ms": 5, "enable.ssl.certificate.verification": True, "client.id": "a"}
            }
        },
    ],
    ids=str,
)
def test_it_takes_what_the_settings_take(values: dict[str, Any]) -> None:
    Settings(**values)
    assert refused(values) == []


@pytest.mark.parametrize(
    "values",
    [
        {"postgress": {}},
        {"postgres": {"dns": "postgresql://localhost/outbox"}},
        {"postgres": {"dsn": 5432}},
        {"kafka": {"bootstrap_servers": ""}},
        {"kafka": {"options": {"linger.ms": [5]}}},
        {"source": {"topics": []}},
        {"source": {"topics": "orders"}},
        {"source": {"starting_offsets": {"orders": {"0": "first"}}}},
        {"session": {"timeout_s": 0}},
        {"session": {"on_timeout": "drop"}},
        {"job": {"latency": "fast"}},
        {"job": {"latency": 3_600_001}},
        {"job": {"driver_memory": "4 GB"}},
        {"publisher": {"lanes": 0}},
        {"publisher": {"headers": ["lane"]}},
        {"publisher": {"output_topics": ["orders*totals"]}},
        {"restart": {"strategy": "fixed_delay"}},
    ],
    ids=str,
)
def test_it_refuses_what_the_settings_refuse(values: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        Settings(**values)
    assert refused(values) != []

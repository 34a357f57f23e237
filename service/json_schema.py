"""The JSON schema of outbox.toml, for editors: `python -m service.json_schema > service/outbox.schema.json`.

Draft 7 without references: taplo, which VS Code uses for TOML, reads no newer draft. It checks each key alone; only `load_settings` checks
the rules between keys.
"""

from typing import Any

from pydantic import SecretStr

from service.commands.output import print_json
from service.configuration import documented_sections
from service.settings import Section

NAME = "outbox.schema.json"


def settings_schema() -> dict[str, Any]:
    """Return the schema, JSON-ready."""
    return {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "outbox.toml",
        "description": "Settings of spark-job, publisher and outbox-migrate.",
        "type": "object",
        "additionalProperties": False,
        "properties": {name: _section(section) for name, section in documented_sections().items()},
    }


def _section(section: type[Section]) -> dict[str, Any]:
    properties = section.model_json_schema()["properties"]
    for key, field in section.model_fields.items():
        found = _plain(properties[key])
        found["description"] = " ".join((field.description or "").split())
        if isinstance(field.default, SecretStr):
            found["default"] = field.default.get_secret_value()
        elif field.default is None:
            # TOML has no null: a key without a value is omitted.
            del found["default"]
        properties[key] = found
    return {"type": "object", "additionalProperties": False, "properties": properties}


def _plain(found: dict[str, Any]) -> dict[str, Any]:
    """Return a key's schema without titles, null, and the formats `password` and `path`, which mean nothing in a TOML editor."""
    options = [_plain(each) for each in found.get("anyOf", ()) if each.get("type") != "null"]
    kept = {
        name: value
        for name, value in found.items()
        if name not in ("title", "anyOf")
        and (name, value) not in (("format", "password"), ("format", "path"))
    }
    return kept | (options[0] if len(options) == 1 else {"anyOf": options} if options else {})


if __name__ == "__main__":
    print_json(settings_schema())

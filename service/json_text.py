"""JSON as commands and logs print it."""

import json

import orjson


def json_text(value: object, *, indented: bool = False) -> str:
    """Return a value as JSON: times as ISO 8601, any other type that JSON lacks as its text."""
    options = orjson.OPT_NON_STR_KEYS | (orjson.OPT_INDENT_2 if indented else 0)
    try:
        return orjson.dumps(value, option=options, default=str).decode()
    except TypeError:
        # orjson refuses integers beyond 64 bits and text that is not UTF-8, such as a path with other bytes.
        return json.dumps(value, default=str, indent=2 if indented else None)

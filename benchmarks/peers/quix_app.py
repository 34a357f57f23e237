"""The application itself: PYTHON quix_app.py SETTINGS.json, with a Python that has quixstreams; imports nothing of this project."""

import json
import sys
from pathlib import Path
from typing import Any

import orjson
from quixstreams import Application, State

_OUTPUTS = 20
_PADDING = b"x" * 161  # see benchmarks.transforms


def event_type(value: bytes) -> str | None:
    """Return what the event is to its session; None for what is not JSON or has no type."""
    try:
        document = orjson.loads(value)
    except orjson.JSONDecodeError:
        return None
    return document.get("event_type") if isinstance(document, dict) else None


def assemble(value: bytes, key: bytes, timestamp_ms: int, headers: Any, state: State) -> list[bytes]:
    """Add an event to its session; an end gives the session's outputs.

    The state of a key cannot be scanned: an event is an entry of its own under its number, and the count is another.
    """
    kind = event_type(value)
    if kind not in ("start_event", "entry_event", "end_event"):
        return []
    count = state.get("count", 0)
    if kind != "end_event":
        state.set_bytes(f"event-{count}", value)
        state.set("count", count + 1)
        return []
    events = [state.get_bytes(f"event-{number}") for number in range(count)]
    for number in range(count):
        state.delete(f"event-{number}")
    if not events:
        return []
    state.delete("count")
    return [b"%013d %02d " % (timestamp_ms, number) + _PADDING for number in range(_OUTPUTS)]


def main(settings: dict[str, Any]) -> None:
    """Run until killed."""
    app = Application(**settings["application"], processing_guarantee="exactly-once")
    events = app.topic(settings["input"], key_deserializer="bytes", value_deserializer="bytes")
    outputs = app.topic(settings["output"], key_serializer="bytes", value_serializer="bytes")
    app.dataframe(events).apply(assemble, stateful=True, metadata=True, expand=True).to_topic(outputs)
    app.run()


if __name__ == "__main__":
    main(json.loads(Path(sys.argv[1]).read_text("utf-8")))

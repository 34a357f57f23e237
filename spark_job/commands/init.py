"""`spark-job init`: a settings file and its schema, a transform to start from, and its test."""

import json
import shlex
import textwrap
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Any

import typer
from pydantic import SecretStr
from pydantic.fields import FieldInfo

from service.commands.output import console
from service.errors import SettingsError
from service.json_schema import NAME as SCHEMA
from service.settings import Settings

_WIDTH = 100

_HEAD = """Settings of spark-job, publisher and outbox-migrate. These are the ones that most pipelines set; docs/configuration.md in the \
repository and in the source distribution has all of them, and docs/your-own-pipeline.md explains a whole pipeline.

Each key is also an environment variable OUTBOX_<SECTION>__<KEY>, which wins over this file. Secrets belong there.

A line like #key = value shows the default, or an example if there is no default.
"""

_CHOSEN: dict[str, dict[str, Any]] = {
    "kafka": {"bootstrap_servers": "localhost:9092"},
    "source": {"topics": ["orders.events"], "consumer_group": "orders-outbox"},
    "session": {
        "key": "$.order_id",
        "type": "$.event",
        "start": "order_opened",
        "entry": "item_added",
        "end": "order_closed",
    },
    "transform": {"function": "transform:transform"},
}
"""The settings that the example needs: {section: {key: value}}."""

_SHOWN: dict[str, dict[str, Any]] = {
    "postgres": {"dsn": None},
    "kafka": {"options": {"security.protocol": "SASL_SSL"}},
    "source": {"starting_offsets": None},
    "session": {"event_id": "$.event_id", "time": None, "timeout_s": None},
    "transform": {"on_error": None},
    "job": {"cache": None, "driver_memory": None, "max_events_per_batch": None},
    "publisher": {"lanes": None, "create_topics": None},
    "retention": {"keep_s": 2_592_000},
    "metrics": {"port": 9464, "job_port": 9465},
    "log": {"format": None},
}
"""The settings that are shown as comments: {section: {key: an example, or None for the default}}."""

_STARTERS = {
    "transform.py": files("spark_job.commands") / "starter.py",
    "test_transform.py": files("spark_job.commands") / "starter_test.py",
    SCHEMA: files("service") / SCHEMA,
}
"""{name of a file: the file that it is a copy of}."""


def init(
    folder: Annotated[
        Path, typer.Argument(file_okay=False, help="Where to write the files; created if it is missing.")
    ] = Path(),
    force: Annotated[bool, typer.Option("--force", help="Replace the files that are there.")] = False,
) -> None:
    """Write a commented `outbox.toml`, a `transform.py` to start from (one total for each closed order), and its test.

    Beside them `outbox.schema.json`, by which editors complete and check `outbox.toml`.
    """
    contents = {"outbox.toml": _settings_file()} | {
        name: source.read_text("utf-8") for name, source in _STARTERS.items()
    }
    there = [name for name in contents if (folder / name).exists()]
    if there and not force:
        raise SettingsError(
            f"{', '.join(there)} in {str(folder.resolve())!r} would be replaced: say --force, or name another folder"
        )
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in contents.items():
            (folder / name).write_text(text, "utf-8")
    except OSError as error:
        raise SettingsError(f"nothing can be written to {str(folder.resolve())!r}: {error}") from error
    console().print(_next_steps(folder))


def _next_steps(folder: Path) -> str:
    steps = {
        f"cd {shlex.quote(str(folder))}": "where both services find these files",
        "pip install pytest && pytest": "tests the transform, without any server",
        "export OUTBOX_POSTGRES__DSN=postgresql://...": "an empty database",
        "outbox-migrate up": "makes the tables",
        "spark-job run": "and, in another terminal:",
        "publisher run": "",
    }
    if folder == Path():
        del steps[f"cd {folder}"]
    lines = [f"  {command:<46}{meaning}".rstrip() for command, meaning in steps.items()]
    wrote = ", ".join(str(folder / name) for name in ("outbox.toml", *_STARTERS))
    return "\n".join(
        [
            f"Wrote {wrote}. Next:",
            "",
            *lines,
            "",
            "Kafka must have the topics orders.events and orders.totals.",
        ]
    )


def _settings_file() -> str:
    """Return the chosen settings as TOML, each below its description in the settings' classes."""
    # Editors that use taplo (VS Code's Even Better TOML) read this line, but only near the top of the file.
    lines = [f"#:schema ./{SCHEMA}", "", *_comment(_HEAD)]
    for section in Settings.model_fields:
        chosen, shown = _CHOSEN.get(section, {}), _SHOWN.get(section, {})
        if chosen or shown:
            lines += ["", f"[{section}]"]
            lines += _keys(section, chosen, "")
            lines += _keys(section, shown, "#")
    return "\n".join(lines) + "\n"


def _keys(section: str, values: dict[str, Any], prefix: str) -> Iterator[str]:
    fields: dict[str, FieldInfo] = Settings.model_fields[section].annotation.model_fields  # type: ignore[union-attr]
    for key, value in values.items():
        yield from _comment(fields[key].description or "")
        yield f"{prefix}{key} = {_toml(fields[key].default if value is None else value)}"


def _comment(text: str) -> Iterator[str]:
    for paragraph in text.splitlines():
        yield from textwrap.wrap(paragraph, _WIDTH, initial_indent="# ", subsequent_indent="# ") or ["#"]


def _toml(value: Any) -> str:
    if isinstance(value, SecretStr):
        value = value.get_secret_value()
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{json.dumps(key)} = {_toml(each)}" for key, each in value.items()) + " }"
    return json.dumps(value)

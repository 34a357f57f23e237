"""Any text as a settings file and any environment: settings that the services can use, or an error that says what is wrong.

<settings file> 0x1E <NAME=value> 0x1E …
"""

import os
import tomllib
from pathlib import Path
from tempfile import TemporaryDirectory
from unittest.mock import patch

from service.errors import SettingsError
from service.settings import Settings, load_settings
from spark_job.ledger.assembly_rules import applied_rules, stored_rules


def check_settings(data: bytes) -> Settings | None:
    """Return the settings, None where they are refused. Fails where anything but SettingsError is raised."""
    text, *variables = data.split(b"\x1e")
    with TemporaryDirectory(prefix="spark-outbox-fuzz-") as folder:
        file = Path(folder, "outbox.toml")
        file.write_bytes(text)
        with patch.dict(os.environ, _environment(variables)):
            try:
                settings = load_settings(file)
                _use(settings)
            except SettingsError:
                return None
    assert tomllib.loads(text.decode("utf-8-sig")).keys() <= Settings.model_fields.keys(), (
        "an unknown key was not refused"
    )
    return settings


def _environment(variables: list[bytes]) -> dict[str, str]:
    """As Python gives it: without NUL, other bytes than UTF-8 as lone surrogates."""
    given = {}
    for variable in variables:
        name, _, value = os.fsdecode(variable.replace(b"\0", b"")).partition("=")
        given[f"OUTBOX_{name}"] = value
    return given


def _use(settings: Settings) -> None:
    """What the services make of them before they reach a server."""
    applied_rules(stored_rules(settings))
    settings.postgres.address()
    settings.postgres.database()
    assert all(isinstance(value, str | int | float) for value in settings.kafka.client().values())
    settings.kafka.java()
    settings.metrics.port_of_job()

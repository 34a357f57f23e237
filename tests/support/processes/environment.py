"""The environment of a process under test: the settings that its test chose, and none that the run itself has."""

import json
import os
from pathlib import Path

from service.settings import Settings
from tests.support.paths import ROOT


def without_settings() -> dict[str, str]:
    """This process's environment without any OUTBOX_ setting; this checkout's modules win over installed ones."""
    kept = {name: value for name, value in os.environ.items() if not name.upper().startswith("OUTBOX_")}
    return kept | {"PYTHONPATH": str(ROOT)}


def variables_of(settings: Settings, fault_file: Path | None = None) -> dict[str, str]:
    """The OUTBOX_ variables that make a publisher or one of its commands use these settings, and follow that plan of faults."""
    variables = {
        "OUTBOX_POSTGRES__DSN": settings.postgres.dsn.get_secret_value(),
        "OUTBOX_KAFKA__BOOTSTRAP_SERVERS": settings.kafka.bootstrap_servers,
    }
    if settings.kafka.options:
        variables["OUTBOX_KAFKA__OPTIONS"] = json.dumps(settings.kafka.options)
    if settings.kafka.secret_options_file is not None:
        variables["OUTBOX_KAFKA__SECRET_OPTIONS_FILE"] = str(settings.kafka.secret_options_file)
    for name, value in settings.publisher.model_dump(exclude_unset=True).items():
        text = value if isinstance(value, str) else json.dumps(value)
        variables[f"OUTBOX_PUBLISHER__{name.upper()}"] = text
    for name in ("archive", "archive_region", "archive_endpoint"):
        if value := getattr(settings.retention, name):
            variables[f"OUTBOX_RETENTION__{name.upper()}"] = value
    if fault_file is not None:
        variables["OUTBOX_TESTING__FAULT_FILE"] = str(fault_file)
    return variables

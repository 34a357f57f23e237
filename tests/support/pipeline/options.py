"""The settings of a pipeline under test: small batches, short leases, few lanes, so that much happens in little time."""

import json
from pathlib import Path
from typing import Any

from service.settings import SessionSettings

SESSION = SessionSettings(event_id="$.event_id", time="$.at", timeout_s=5, grace_s=2)
LANES = 3

Options = dict[str, dict[str, Any]]
"""{section: {key: value}}"""


def small(dsn: str, bootstrap: str, prefix: str, topic: str, cache: Path, others: Options) -> Options:
    """Settings of both services. `prefix`: of groups; `topic`: the input; `others` win."""
    options: Options = {
        "postgres": {"dsn": dsn},
        "kafka": {"bootstrap_servers": bootstrap},
        "source": {"topics": [topic], "consumer_group": f"{prefix}job"},
        "session": SESSION.model_dump(exclude_unset=True),
        "transform": {"function": "tests.support.pipeline.transforms:twenty"},
        "job": {
            "cache": str(cache),
            "master": "local[2]",
            "driver_memory": "1g",
            "max_events_per_batch": 4_000,
            "heartbeat_s": 0.5,
            "owner_timeout_s": 3.0,
        },
        "publisher": {
            "lanes": LANES,
            "transaction_sessions": 50,
            "poll_ms": 500,
            "idle_progress_s": 1.0,
            "lease_s": 5.0,
        },
    }
    for section, values in others.items():
        options[section] = options.get(section, {}) | values
    return options


def environment(options: Options) -> dict[str, str]:
    """The OUTBOX_ variables of settings {section: {key: value}}."""
    return {
        f"OUTBOX_{section}__{key}".upper(): value if isinstance(value, str) else json.dumps(value)
        for section, values in options.items()
        for key, value in values.items()
    }

"""What Spark pickles of a task has no client's options in it; the task gets them beside it."""

import pickle
from dataclasses import replace
from pathlib import Path
from typing import Any

from spark_job.assembly.task import AssemblyTask
from spark_job.spark.task_secrets import without_secrets
from tests.support.histories.tasks import task_settings


class _Context:
    def __init__(self) -> None:
        self._conf = _Conf()
        self.properties: dict[str, str] = {}

    def setLocalProperty(self, name: str, value: str) -> None:  # noqa: N802 - Spark's name
        self.properties[name] = value


class _Conf:
    def set(self, _name: str, _value: str) -> None:
        """Take it."""


def test_the_options_of_both_clients_travel_beside_the_pickled_task(tmp_path: Path) -> None:
    settings = replace(
        task_settings(tmp_path),
        kafka={"sasl.password": "k4fka"},
        registry={"basic.auth.user.info": "r3gistry"},
    )
    context: Any = _Context()
    sent = pickle.dumps(without_secrets(AssemblyTask(settings, {}), context))
    assert b"k4fka" not in sent
    assert b"r3gistry" not in sent
    ((name, value),) = context.properties.items()
    assert "secret" in name  # what makes Spark hide the value
    assert "k4fka" in value
    assert "r3gistry" in value

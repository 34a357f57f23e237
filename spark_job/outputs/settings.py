"""The settings of the transform and of the schemas of its outputs, as plain values: each batch sends them to the executors."""

from dataclasses import dataclass, field
from typing import Literal

from contract.output_topics import OutputTopics


@dataclass(frozen=True)
class TransformOf:
    """The transform of a run."""

    function: str
    """`module:function`."""
    fingerprint: str
    """Fingerprint of its module; a worker with another one refuses to run."""
    stop_on_error: bool
    max_row_bytes: int
    topics: OutputTopics = field(default_factory=OutputTopics)
    """The topics that outputs may go to."""


@dataclass(frozen=True)
class OutputSchemaRules:
    """How the schemas of outputs are looked up in the registry."""

    auto_register: bool = False
    subject_name_strategy: Literal["topic", "record", "topic_record"] = "topic"

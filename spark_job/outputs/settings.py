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
    """Of its module; a worker that finds another one refuses."""
    stop_on_error: bool
    max_row_bytes: int
    topics: OutputTopics = field(default_factory=OutputTopics)
    """Those that outputs may go to."""


@dataclass(frozen=True)
class OutputSchemaRules:
    """How the schemas of outputs are found in the registry."""

    auto_register: bool = False
    subject_name_strategy: Literal["topic", "record", "topic_record"] = "topic"

"""The answer of `/healthz` and `/readyz`: yes, or no with the reasons. Pure."""

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class HealthVerdict:
    """`reasons`: why the answer is no; none: yes. `details`: further JSON-ready content."""

    reasons: list[str]
    details: dict[str, Any] = field(default_factory=dict)

    @property
    def holds(self) -> bool:
        """Whether the answer is yes."""
        return not self.reasons

    def as_json(self, word: str) -> dict[str, Any]:
        """Return the answer; `word`: the question, `healthy` or `ready`."""
        return {word: self.holds, "reasons": self.reasons} | self.details

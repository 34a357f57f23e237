"""The checks of an audit and its report. Pure."""

from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

T = TypeVar("T")

EXAMPLES = 20
"""How many findings of a check are kept as examples; all are counted."""


@dataclass(slots=True, kw_only=True)
class FindingTally(Generic[T]):
    """Counts the findings of one kind and keeps the first ones as examples."""

    count: int = 0
    examples: list[T] = field(default_factory=list)

    def add(self, example: T, count: int = 1) -> None:
        """Count a finding."""
        self.count += count
        if len(self.examples) < EXAMPLES:
            self.examples.append(example)


@dataclass(slots=True)
class Check(FindingTally[str]):
    """The findings on one question. Findings of a note (`fails` False) never fail the audit."""

    name: str
    question: str
    fails: bool = True

    @property
    def failed(self) -> bool:
        """Whether something is wrong."""
        return self.fails and self.count > 0


@dataclass(slots=True)
class AuditReport:
    """The scope and the results of an audit. `mend`: commands that send lost outputs again."""

    outbox_uuid: str
    first_batch: int
    last_batch: int
    ledger_from: int | None
    rows_from: int | None
    checks: list[Check] = field(default_factory=list)
    counted: dict[str, int] = field(default_factory=dict)
    mend: list[str] = field(default_factory=list)

    @property
    def clean(self) -> bool:
        """Whether no check failed."""
        return not any(check.failed for check in self.checks)

    def as_json(self) -> dict[str, Any]:
        """Return the report for JSON output."""
        return {
            "outbox_uuid": self.outbox_uuid,
            "clean": self.clean,
            "first_batch": self.first_batch,
            "last_batch": self.last_batch,
            "ledger_from": self.ledger_from,
            "rows_from": self.rows_from,
            "counted": self.counted,
            "checks": [
                {
                    "name": check.name,
                    "question": check.question,
                    "result": "failed" if check.failed else "noted" if check.count else "ok",
                    "count": check.count,
                    "examples": check.examples,
                }
                for check in self.checks
            ],
            "mend": self.mend,
        }

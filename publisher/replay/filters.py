"""The filters of a replay. Pure: no Postgres, no Kafka."""

from dataclasses import dataclass
from typing import Any

from service.commands.times import Moment


@dataclass(frozen=True, slots=True)
class Filters:
    """All of them must hold. Batches are inclusive; `since` <= a batch's commit < `until`; None: no such filter."""

    from_batch: int | None = None
    to_batch: int | None = None
    since: Moment | None = None
    until: Moment | None = None
    keys: tuple[str, ...] | None = None
    topics: tuple[str, ...] | None = None

    @property
    def empty(self) -> bool:
        """Whether nothing is left out."""
        asked = (self.from_batch, self.to_batch, self.since, self.until, self.keys, self.topics)
        return all(filter_ is None for filter_ in asked)


def as_json(filters: Filters) -> dict[str, Any]:
    """Return the filters, to be shown later. Keys are counted: they are kept in a table of their own."""
    found: dict[str, Any] = {
        name: getattr(filters, name)
        for name in ("from_batch", "to_batch")
        if getattr(filters, name) is not None
    }
    for name, moment in (("since", filters.since), ("until", filters.until)):
        if moment is not None:
            found[name] = (
                moment.at.isoformat() if moment.at is not None else f"{moment.age_s:g}s before it was made"
            )
    if filters.keys is not None:
        found["keys"] = len(filters.keys)
    if filters.topics is not None:
        found["topics"] = list(filters.topics)
    return found

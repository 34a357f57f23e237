"""What goes wrong on the way to a topic, as shares of the generated sessions."""

from dataclasses import dataclass, fields
from typing import Self

import numpy as np
import numpy.typing as npt

from examples.clickstream.payload import BROKEN_TAIL, CUT_TAIL, RESTART_TAIL, Heads, entry_tail

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Rows:
    """Events as parallel arrays: time in ms, number of the session, which head and which tail make the value."""

    at: Ints
    session: Ints
    head: Ints
    tail: Ints

    def plus(self, other: Self) -> Self:
        """Both, these first."""
        return type(self)(
            *(np.concatenate([getattr(self, f.name), getattr(other, f.name)]) for f in fields(self))
        )

    def made_of(self, head: int, tail: int) -> Self:
        """The same times and sessions with another payload."""
        return type(self)(self.at, self.session, np.full_like(self.head, head), np.full_like(self.tail, tail))

    def where(self, chosen: npt.NDArray[np.bool_] | npt.NDArray[np.int64]) -> Self:
        """The chosen rows, in the order of an index or of a mask."""
        return type(self)(*(getattr(self, f.name)[chosen] for f in fields(self)))


@dataclass(frozen=True)
class Anomalies:
    """Shares (0 to 1) of the sessions that something happens to; each is drawn by itself."""

    duplicates: float = 0.0
    """One of its events comes twice, with the same bytes: dropped and counted, by the event id."""
    orphans: float = 0.0
    """Beside it an entry arrives whose session never started: dead letter `no_start`."""
    restarts: float = 0.0
    """A second start arrives half-way: the first half becomes a dead letter `restarted`, the rest a session."""
    malformed: float = 0.0
    """An additional record arrives that is cut off and no JSON: dead letter `malformed`."""
    missing_ends: float = 0.0
    """Its end never comes: it stays open, and times out when later events show the silence."""
    pageless: float = 0.0
    """One of its clicks has no page, which the transform refuses: dead letter `transform_failed`."""

    def __post_init__(self) -> None:
        """Raises ValueError for a share outside 0 to 1."""
        for field in fields(self):
            share = getattr(self, field.name)
            if not 0 <= share <= 1:
                raise ValueError(f"{field.name} is {share}: a share is from 0 to 1")

    def apply(self, rows: Rows, per_session: int, random: np.random.Generator) -> Rows:
        """Change the rows of whole sessions, which lie session after session, `per_session` rows each."""
        sessions = np.arange(len(rows.at) // per_session) * per_session

        def drawn(share: float) -> Ints:
            """First rows of the sessions drawn."""
            return sessions[random.random(len(sessions)) < share]

        half = per_session // 2
        tail = rows.tail.copy()
        tail[drawn(self.pageless) + half] = BROKEN_TAIL
        rows = Rows(rows.at, rows.session, rows.head, tail)
        twice = drawn(self.duplicates)
        added = [rows.where(twice + random.integers(0, per_session - 1, len(twice)))]
        added.append(rows.where(drawn(self.orphans) + half).made_of(Heads.ORPHAN, entry_tail(0, 0)))
        added.append(rows.where(drawn(self.restarts) + half).made_of(Heads.START, RESTART_TAIL))
        added.append(rows.where(drawn(self.malformed) + half).made_of(Heads.ENTRY, CUT_TAIL))
        kept = np.ones(len(rows.at), dtype=np.bool_)
        kept[drawn(self.missing_ends) + per_session - 1] = False
        result = rows.where(kept)
        for extra in added:
            result = result.plus(extra)
        return result

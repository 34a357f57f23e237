"""A leader that is cut off from its cluster, and answers with the end that it knew then."""

from collections.abc import Iterable

import pytest

from publisher.kafka.topics import Topics

_UNKNOWN = 2
"""Offsets of a transaction in a progress topic: its record and the commit marker."""


class OldLeader:
    """Answers so many questions about the ends of the topics with this suffix without their newest transaction."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, suffix: str, questions: int) -> None:
        self.answered = 0
        self.left = questions
        ends = Topics._ends

        def old_ends(
            topics: Topics, topic: str, partitions: Iterable[int], committed: bool
        ) -> dict[int, int]:
            found = ends(topics, topic, partitions, committed)
            if topic.endswith(suffix) and self.left:
                self.left -= 1
                self.answered += 1
                return {partition: max(0, end - _UNKNOWN) for partition, end in found.items()}
            return found

        monkeypatch.setattr(Topics, "_ends", old_ends)

"""The topics that outputs may go to. The job checks before it stores an output, the publisher before it sends one."""

import re
from collections.abc import Iterable

_UUID = r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"
# Only Kafka writes these topics. It refuses others' records in all but __remote_log_metadata, and a refused record stops its lane.
_KAFKA_S_OWN = frozenset(
    {
        "__cluster_metadata",
        "__consumer_offsets",
        "__remote_log_metadata",
        "__share_group_state",
        "__transaction_state",
    }
)
_MOST_REMEMBERED = 10_000
_ANY_PROGRESS = re.compile(rf".+-{_UUID}(-replays)?")
"""Matches every progress topic, whatever `[publisher] progress_topic` is. Other topics may match, too."""


class OutputTopics:
    """Judges topics by `[publisher] output_topics`. Always refuses progress topics: an output in one would move a lane."""

    def __init__(self, allowed: Iterable[str] = (), progress_topic: str = "outbox-progress") -> None:
        """`allowed`: names, and prefixes that end in `*`. If empty, all topics but progress topics and Kafka's own are allowed."""
        allowed = tuple(allowed)
        self._names = frozenset(name for name in allowed if not name.endswith("*"))
        self._prefixes = tuple(name[:-1] for name in allowed if name.endswith("*"))
        bases = "|".join(sorted({"outbox-progress", re.escape(progress_topic)}))
        # Matches every outbox's topics: several outboxes may share a cluster and a publisher's rights.
        self._progress = re.compile(rf"({bases})-{_UUID}(-.*)?")
        self._refusals: dict[str, str | None] = {}

    def refusal(self, topic: str) -> str | None:
        """Return why no output may go to `topic`; None if it may."""
        if topic not in self._refusals:
            if len(self._refusals) >= _MOST_REMEMBERED:
                self._refusals.clear()
            self._refusals[topic] = self._judge(topic)
        return self._refusals[topic]

    def refusal_where_compacted(self, topic: str) -> str | None:
        """Return why no output may go to `topic`, which is compacted and which `refusal` allows; None if it may.

        Another outbox may have named its progress topics differently: only a person can then tell them from output topics.
        """
        if self._names or self._prefixes or not _ANY_PROGRESS.fullmatch(topic):
            return None
        return (
            f"{topic!r} is called and compacted like the progress topic of an outbox, and a record in that would move a publisher's lanes. "
            "If it is none, list it and all other topics of outputs in [publisher] output_topics"
        )

    def _judge(self, topic: str) -> str | None:
        if self._progress.fullmatch(topic):
            return f"{topic!r} is the progress topic of an outbox: a record in it would move the publisher's lanes"
        if topic in _KAFKA_S_OWN:
            return f"{topic!r} is one of Kafka's own topics, which only Kafka writes"
        if not self._names and not self._prefixes:
            return None
        if topic in self._names or topic.startswith(self._prefixes):
            return None
        return f"topic {topic!r} is not in [publisher] output_topics. Add it, or a prefix of it that ends in '*', if outputs may go there"

"""Decides which topics a replay sends to: each output's own, one topic for all outputs, or new names for some topics. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, Self


class ReplayTargets(NamedTuple):
    """`every`: one topic for all outputs, or None; `renamed`: {topic: new name}. Stored as text: NAME, or OLD=NEW,OLD=NEW."""

    every: str | None = None
    renamed: Mapping[str, str] = {}

    @classmethod
    def of_words(cls, words: Sequence[str]) -> Self:
        """Read a command's arguments: one NAME, or any number of OLD=NEW. Raises ValueError."""
        if any("=" not in word for word in words):
            if len(words) > 1:
                raise ValueError(f"{' '.join(words)} is neither one NAME for all outputs nor OLD=NEW each")
            return cls(words[0])
        pairs = [(old, new) for old, _, new in (word.partition("=") for word in words)]
        if any(not old or not new or "=" in new for old, new in pairs):
            raise ValueError(f"{' '.join(words)} has a word that is not OLD=NEW")
        if len({old for old, _ in pairs}) < len(pairs):
            raise ValueError(f"{' '.join(words)} renames a topic twice")
        return cls(None, dict(pairs))

    @classmethod
    def of_text(cls, text: str | None) -> Self:
        """Parse what `text` returned. No topic name contains a comma or an equals sign. Raises ValueError."""
        return cls() if text is None else cls.of_words(text.split(","))

    @property
    def text(self) -> str | None:
        """The form that is stored and shown; None if each output goes to its own topic."""
        return self.every or ",".join(f"{old}={new}" for old, new in sorted(self.renamed.items())) or None

    @property
    def named(self) -> list[str]:
        """The topics that a person has named as targets."""
        return [self.every] if self.every is not None else sorted(set(self.renamed.values()))

    def of(self, topic: str) -> str:
        """Return the topic to which the outputs for `topic` are sent."""
        return self.every or self.renamed.get(topic, topic)

    def of_all(self, topics: Iterable[str]) -> set[str]:
        """Return the topics to which the outputs for these topics are sent."""
        return {self.of(topic) for topic in topics}

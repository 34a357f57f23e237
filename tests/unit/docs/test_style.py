"""The language of the pages, as far as a list of words can hold it. A rule is (what is not written, what is written instead)."""

import re
from pathlib import Path

import pytest

from tests.support.pages.markdown import pages, prose

RULES = (
    # A passive of "to have" or "to tell" hides who acts.
    (r"\b(?:is|are|was|were|be) (?:not )?(?:to be )?had\b", "name who has it; 'could not acquire'"),
    (r"\b(?:is|are|was|were) told\b", "'receives', 'reads', 'learns'"),
    # The field's terms instead of phrasal verbs.
    (r"\b(?:get|gets|got|getting) on\b", "'makes progress', 'is stalled'"),
    (r"\b(?:is|are|was|were) through\b", "'has delivered', 'has passed'"),
    (r"\bgets? through\b", "'succeeds', 'is delivered'"),
    (r"(?<!a standby )(?<!a second one )\bgo(?:es)? on\b", "'continues'"),
    (r"\bmend(?:s|ed|ing)?\b", "'correct', 'repair'"),
    (r"\banew\b", "'again', 'from the beginning'"),
    (r"\bstands? still\b", "'is stalled', 'hangs'"),
    # "found" is a verb; the noun is "finding".
    (r"\b(?:a|each|every|its) found\b", "'finding'"),
    # A clause that points back is read twice: repeat the verb with its object.
    (r"\bsa(?:y|ys|id) (?:so|why|which|how)\b", "'reports', 'names', 'gives the reason'"),
    (r"\b[Ww]hoever\b", "name the actor: 'a person who', 'the process that'"),
    (r"\bon the way\b", "'during the rebuild', 'meanwhile'"),
    (r"\bown words\b", "'message', 'text', 'separate'"),
    (r"\bthe latter\b", "repeat the noun"),
    # A person looks, asks and sees; a program reads, checks or requests.
    (r"\bnot looked at\b|\bno look\b|\bcounts? for nothing\b", "'ignored', 'unchecked'"),
    (r"'s to (?:see|say|know|decide)\b", "'decides', 'knows'"),
    (r"\bby (?:the|its) \S+ word\b", "'as ... reports'"),
    # A result has a verb of its own.
    (r"\bcomes? to (?:the same|others)\b|\bwhat becomes of\b", "'yields', 'results in'"),
    # A page describes the present; the changelog and the decisions have the past.
    (r"\b(?:[Bb]efore, it was|used to be)\b", "the present state"),
)
GENERATED = ("docs/faults.md", "docs/faults-publisher.md", "docs/soak.md")


def is_checked(page: Path) -> bool:
    """The pages for users and the changelog; what a command measured is written by that command."""
    name = page.as_posix()
    return name in ("README.md", "db/README.md", "CHANGELOG.md") or (
        name[:5] == "docs/" and name not in GENERATED
    )


@pytest.mark.parametrize("page", [page for page in pages() if is_checked(page)], ids=str)
def test_a_page_uses_the_words_of_the_field(page: Path) -> None:
    text = [(number, re.sub(r"`[^`]*`", "`", line)) for number, line in prose(page)]
    found = [(n, re.search(wrong, line), better) for n, line in text for wrong, better in RULES]
    assert not (bad := [f"{page}:{n}: {at[0]!r}: {better}" for n, at, better in found if at]), "\n".join(bad)


@pytest.mark.parametrize("text", ["it is told", "Whoever reads it", "the lane gets on", "it says why"])
def test_other_words_are_seen(text: str) -> None:
    assert any(re.search(wrong, text) for wrong, _ in RULES)

"""The rights in Kafka that docs/ecosystem.md lists are those that the tests grant, and no others."""

import re

import pytest

from tests.support.paths import ROOT
from tests.support.secured.rights import CLOCK, JOB, PUBLISHER, Rights

TEXT = (ROOT / "docs" / "ecosystem.md").read_text("utf-8")
RESOURCES = {
    "topic {output}": "each output topic",
    "topic {input}": "each input topic",
    "group {group}": "consumer group `[source] consumer_group`",
}
KINDS = {"group": "consumer group", "topic": "topic", "transactional_id": "transactional id"}


def shown(rights: Rights) -> tuple[str, str]:
    """The first two columns of a row."""
    kind = KINDS[rights.kind]
    named = f"{kind}s that begin with `{rights.name}`" if rights.prefix else f"{kind} `{rights.name}`"
    return RESOURCES.get(f"{rights.kind} {rights.name}", named), ", ".join(rights.operations)


def listed(after: str) -> list[tuple[str, str]]:
    """(resource, operations) of the table behind a sentence; what is in brackets names the setting."""
    table = TEXT.partition(after)[2].split("\n\n")[1]
    rows = [line.strip("|").split("|") for line in table.splitlines()[2:]]
    return [(re.sub(r" \(.*?\)", "", row[0]).strip(), row[1].strip()) for row in rows]


@pytest.mark.guarantee(113)
@pytest.mark.parametrize(
    ("sentence", "rights"),
    [
        ("the publisher's user needs:", PUBLISHER),
        ("from those of the executors:", JOB),
        ("The user of `spark-job clock` needs:", CLOCK),
    ],
    ids=["publisher", "job", "clock"],
)
def test_the_page_lists_what_the_tests_grant(sentence: str, rights: tuple[Rights, ...]) -> None:
    assert listed(sentence) == [shown(each) for each in rights]

"""The rights that docs/ecosystem.md lists for the Kafka users of both services; a test compares this with the page."""

import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from confluent_kafka.admin import AclBinding  # type: ignore[attr-defined]

from tests.support.secured.kafka import USER, right


class Rights(NamedTuple):
    """Operations on one resource. `name`: may hold `{input}`, `{group}` or `{output}`; `prefix`: all names that begin so."""

    kind: str
    name: str
    operations: tuple[str, ...]
    prefix: bool = False


class Right(NamedTuple):
    """One operation, as messages name it."""

    kind: str
    name: str
    operation: str
    prefix: bool

    def acl(self, user: str = USER, **names: str) -> AclBinding:
        """As Kafka takes it. `names`: of the test's own topics and group."""
        operation = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", self.operation)
        return right(self.kind, self.name.format_map(names), operation.lower(), prefix=self.prefix, user=user)


JOB = (
    Rights("topic", "{input}", ("DescribeConfigs", "Read")),
    Rights("group", "outbox-rebuild", ("Describe",)),
    Rights("topic", "outbox-progress-", ("Read",), prefix=True),
    Rights("group", "outbox-progress-", ("Describe",), prefix=True),
    Rights("group", "{group}", ("Read",)),
)
CLOCK = (Rights("topic", "{input}", ("Write",)),)
PUBLISHER = (
    Rights("topic", "{output}", ("DescribeConfigs", "Write")),
    Rights("topic", "outbox-progress-", ("Create", "DescribeConfigs", "Read", "Write"), prefix=True),
    Rights("group", "outbox-publisher-progress", ("Describe",)),
    Rights("transactional_id", "outbox-", ("Write",), prefix=True),
)


def single(table: Iterable[Rights]) -> Iterator[Right]:
    """Yield each operation by itself."""
    for rights in table:
        for operation in rights.operations:
            yield Right(rights.kind, rights.name, operation, rights.prefix)

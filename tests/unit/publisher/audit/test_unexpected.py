"""A record that no audited row explains is unexpected only if no batch outside the audit, and no erased row, can have sent it."""

import pytest

from publisher.audit.readback.digest import NOT_REPLAYED, ReceivedOutput, partition_number
from publisher.audit.readback.unexpected import unexpected_record_rule
from publisher.audit.scope import Scope

REVISION = 3


def scope(first: int = 1, *, to_end: bool = True) -> Scope:
    return Scope(1, 1, first, 9, [(first, 9)], to_end, [(0, 1, 1)], {})


def record(offset: int, partition: int = 0, revision: int = REVISION) -> ReceivedOutput:
    """A record of a session that ends at an offset of input topic `b`."""
    return ReceivedOutput(
        b"", b"", 0, 0, 7, 0, revision, offset, partition_number(1, partition), NOT_REPLAYED
    )


@pytest.mark.parametrize(
    ("audited", "found", "counter"),
    [
        (scope(), record(5), None),
        (scope(), record(5, revision=1), None),
        (scope(4), record(20), None),
        (scope(4), record(19), "records_out_of_scope"),
        (scope(4), record(20, revision=1), "records_out_of_scope"),
        (scope(4), record(0, partition=2), None),
        (scope(to_end=False), record(20), "records_out_of_scope"),
        (scope(), record(8), "records_of_erased_outputs"),
        (scope(), record(8, revision=1), None),
        (scope(4), record(8, partition=1), "records_out_of_scope"),
    ],
)
def test_a_record_is_unexpected_only_if_nothing_outside_the_audit_can_have_sent_it(
    audited: Scope, found: ReceivedOutput, counter: str | None
) -> None:
    bounds = [{"b": {"0": 10, "1": 10}}, {"b": {"0": 20}, "a": {"0": 900}}]
    erased = {("b/0", 8): frozenset([REVISION]), ("other/0", 5): frozenset([REVISION])}
    assert unexpected_record_rule(audited, ["a", "b"], erased, REVISION, bounds)(found) == counter

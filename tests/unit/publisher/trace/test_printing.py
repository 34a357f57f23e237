"""Session keys, headers of records and a consumer's rows hold any text: in a report each stays within its line."""

from datetime import UTC, datetime

import pytest

from contract.positions import RecordPosition
from outbox_consumer.reading import ConsumedAs
from publisher.trace.consumers import Consumption
from publisher.trace.input_positions import PositionMatches
from publisher.trace.outputs import Output
from publisher.trace.printing import print_consumed, print_deliveries, print_outputs, print_record
from publisher.trace.records import Copy, StoredRecord

TWO = "a\nsession-out partition 0 offset 5"
ID = "topic/0/9/0"
OUTPUT = Output(1, ID, 0, "session-out", "delivered", datetime(2026, 1, 1, tzinfo=UTC), None, TWO, 0, 1, 7)


def test_what_others_wrote_makes_no_line_of_its_own(capsys: pytest.CaptureFixture[str]) -> None:
    row = ConsumedAs(TWO, 0, TWO, 0, 5, TWO, set_aside=TWO)
    consumed = {ID: [Consumption(row, None)]}
    print_deliveries([OUTPUT])
    print_outputs([OUTPUT], {OUTPUT.identity: [Copy(ID, 0, TWO, "session-out", 0, 5)]}, consumed)
    print_consumed([OUTPUT], consumed)
    record = StoredRecord(TWO, 0, TWO, None, None)
    place = RecordPosition("session-out", 0, 5)
    print_record(place, record, "", [OUTPUT], PositionMatches([]), is_erased=False)
    lines = [line.strip() for line in capsys.readouterr().out.splitlines()]
    assert sum("partition 0 offset 5" in line for line in lines) >= 5
    assert not [line for line in lines if line.startswith(TWO.partition("\n")[2])][1:]

"""The example's `show` tells outputs of a reissue and of a replay from duplicates, and cuts nothing."""

import pytest

from examples.clickstream.reading import KafkaRecord
from examples.clickstream.show import record_table, row_table
from service.commands.output import console

VALUE = b'{"long": "' + b"x" * 300 + b'"}'


def record(offset: int, **headers: bytes) -> KafkaRecord:
    return KafkaRecord(
        "shop.funnel", 0, offset, 0, b"sess", VALUE, {k.replace("_", "-"): v for k, v in headers.items()}
    )


def test_revision_and_replay_are_shown(capsys: pytest.CaptureFixture[str]) -> None:
    sent = {"outbox_id": b"T/0/68/3"}
    records = [
        record(1, **sent),
        record(5, **sent, outbox_revision=b"2"),
        record(9, **sent, outbox_revision=b"2", outbox_replay=b"a-replay"),
    ]
    record_table(records).print(console())
    said = capsys.readouterr().out
    assert "shop.funnel/0/1         T/0/68/3   0\n" in said
    assert "shop.funnel/0/5         T/0/68/3   2\n" in said
    assert "shop.funnel/0/9         T/0/68/3   2\n  replay a-replay\n" in said
    assert said.count(f"  {VALUE.decode()}\n") == 3


def test_input_records_have_neither(capsys: pytest.CaptureFixture[str]) -> None:
    record_table([record(55)]).print(console())
    assert capsys.readouterr().out == f"topic/partition/offset\nshop.funnel/0/55\n  {VALUE.decode()}\n"


def test_rows_of_the_outbox_have_their_revision(capsys: pytest.CaptureFixture[str]) -> None:
    row_table([(7, "T/0/68/3", 2, "shop.funnel", VALUE.decode(), "delivered")]).print(console())
    assert "T/0/68/3   2         7      delivered  shop.funnel\n" in capsys.readouterr().out

"""What a command asked for is done by the next start, or refused with the outbox as it was."""

from typing import Any
from uuid import uuid4

import pytest

from db.connection import Connection
from service.errors import ContinuityError
from spark_job.input.offsets import Offsets
from spark_job.ledger import requests
from spark_job.ledger.open_partitions import OpenPartition
from spark_job.recovery.outbox_behind import Delivered
from spark_job.recovery.start import RequestRefusedError
from tests.support.recovery.starts import (
    ADDED,
    OPEN,
    Input,
    ask,
    begins_at,
    everything,
    newest,
    run_row,
    settings,
    start,
)
from tests.support.sink.batches import P0, P1, SinkRun


def test_a_reissue_begins_at_the_savepoint_with_what_was_open_there(
    sink_run: SinkRun, connection: Connection
) -> None:
    asked = ask(connection, savepoint="monday", policy="reissue")
    start(connection, request=asked)
    generation = newest(connection)
    assert (generation.reason, generation.policy, generation.savepoint) == ("savepoint", "reissue", "monday")
    assert generation.revision == 1
    assert begins_at(generation) == (
        {P0: 70, P1: 50},
        {P0: OpenPartition(40, 1, 2, 10, "3-digest of [40]")},
    )
    assert run_row(connection)["restored"] == "savepoint"
    answer = requests.outcome(connection, asked.request_id)
    assert answer is not None
    assert answer.done
    # Killed before its first batch: the next start uses it as it stands.
    start(connection)
    assert (newest(connection).number, run_row(connection)["restored"]) == (2, "savepoint")
    assert Offsets.from_json(run_row(connection)["resumes_at"]) == {P0: 70, P1: 50}


def test_a_reissue_reads_a_partition_that_was_added_since_from_its_first_record_on(
    sink_run: SinkRun, connection: Connection
) -> None:
    kafka = Input(earliest={P0: 0, P1: 0, ADDED: 0}, latest={P0: 500, P1: 500, ADDED: 9})
    start(connection, kafka, request=ask(connection, savepoint="monday", policy="reissue"))
    assert newest(connection).start == {P0: 70, P1: 50, ADDED: 0}
    kafka.earliest = {P0: 0, P1: 0, ADDED: 3}
    asked = ask(connection, savepoint="monday", policy="reissue", accept_data_loss=True)
    start(connection, kafka, request=asked)
    assert newest(connection).start == {P0: 70, P1: 50, ADDED: 3}


def test_a_skip_ends_a_reissue_where_the_outbox_has_been_before(
    sink_run: SinkRun, connection: Connection
) -> None:
    start(connection, request=ask(connection, savepoint="monday", policy="reissue"))
    start(connection, request=ask(connection, policy="skip"))
    generation = newest(connection)
    assert (generation.number, generation.reason, generation.policy) == (3, "skip", "skip")
    assert (generation.revision, generation.savepoint) == (1, None)
    assert begins_at(generation) == ({P0: 100, P1: 50}, {P0: OPEN})


def test_a_cut_of_what_a_reissue_has_not_reached_again_needs_a_word(
    sink_run: SinkRun, connection: Connection
) -> None:
    """Or a skip would later continue behind records that nobody has read."""
    start(connection, request=ask(connection, savepoint="monday", policy="reissue"))
    kafka = Input(latest={P0: 90, P1: 500})
    with pytest.raises(ContinuityError, match=r"ends at 90, was read up to 100.*--accept-truncation"):
        start(connection, kafka)
    with pytest.raises(RequestRefusedError, match="No flag accepts that here"):
        start(connection, kafka, request=ask(connection, savepoint="monday", policy="reissue"))
    start(connection, kafka, "truncation")
    generation = newest(connection)
    assert (generation.number, generation.revision) == (3, 2)
    assert generation.cut == {P0: 90}
    assert begins_at(generation) == (
        {P0: 70, P1: 50},
        {P0: OpenPartition(40, 1, 2, 10, "3-digest of [40]")},
    )
    start(connection, request=ask(connection, policy="skip"))
    assert newest(connection).start == {P0: 70, P1: 50}


@pytest.mark.parametrize(
    ("arguments", "kafka", "timeout_s", "says"),
    [
        ({"savepoint": "mondy", "policy": "reissue"}, Input(), 60, "Did you mean 'monday'"),
        ({"savepoint": None, "policy": "reissue"}, Input(), 60, "needs a savepoint"),
        (
            {"savepoint": "monday", "policy": "reissue"},
            Input(earliest={P0: 41, P1: 0}),
            60,
            "--accept-data-loss",
        ),
        (
            {"savepoint": "monday", "policy": "reissue"},
            Input(earliest={P0: 0, P1: 0, ADDED: 3}, latest={P0: 500, P1: 500, ADDED: 9}),
            60,
            r"input/2: offsets 0 to 2 \(3\).*--accept-data-loss",  # the reissue would not send them again
        ),
        ({"savepoint": "monday", "policy": "reissue"}, Input(), 90, "--accept-changed-assembly"),
        ({"savepoint": "monday", "policy": "reissue"}, Input(latest={P0: 69, P1: 500}), 60, "ends at 69"),
        ({"policy": "skip"}, Input(earliest={P0: 41, P1: 0}), 60, "--accept-data-loss"),
        ({"savepoint": "monday", "policy": "skip"}, Input(), 60, "'monday'.*--policy reissue"),
    ],
)
def test_a_request_that_cannot_be_fulfilled_is_refused_and_the_outbox_stays_as_it_was(
    sink_run: SinkRun,
    connection: Connection,
    arguments: dict[str, Any],
    kafka: Input,
    timeout_s: int,
    says: str,
) -> None:
    before = everything(connection)
    asked = ask(connection, **arguments)
    of = settings(session={"timeout_s": timeout_s})
    with pytest.raises(RequestRefusedError, match=says):
        start(connection, kafka, of=of, request=asked)
    assert everything(connection) == before
    assert (
        requests.outcome(connection, asked.request_id) is None
    )  # the job gives it, on its way to the next attempt


def test_a_request_is_not_fulfilled_where_the_database_lost_its_end_meanwhile(
    sink_run: SinkRun, connection: Connection, delivered: list[Delivered]
) -> None:
    delivered.append(Delivered(9, uuid4()))
    with pytest.raises(RequestRefusedError, match="may have lost its newest batches"):
        start(connection, request=ask(connection, policy="skip"))


def test_a_command_that_gave_up_waiting_gets_nothing_done_any_more(
    sink_run: SinkRun, connection: Connection
) -> None:
    before = everything(connection)
    asked = ask(connection, policy="skip")
    assert requests.withdraw(connection, asked.request_id)
    with pytest.raises(requests.WithdrawnError):
        start(connection, request=asked)
    assert everything(connection) == before

"""The whole product under a login for which every parameter that a user may set has an odd value."""

from pathlib import Path

import pytest

from db.migrate import ROLES
from devstack.kafka import KafkaServer
from tests.support.outbox.odd_login import odd_login
from tests.support.pipeline.pipeline import Pipeline


@pytest.mark.faults
def test_each_output_comes_once_although_every_parameter_of_the_login_is_odd(
    database: str, kafka: KafkaServer, topic_prefix: str, tmp_path: Path
) -> None:
    with (
        odd_login(database, *ROLES) as dsn,
        Pipeline(database, kafka.bootstrap_servers, topic_prefix, tmp_path) as pipeline,
    ):
        login = {"OUTBOX_POSTGRES__DSN": dsn}
        pipeline.feed(51, sessions=30)
        pipeline.job.start(**login)
        pipeline.publisher.start(**login)
        pipeline.wait_for_input(pipeline.expectation())
        pipeline.feed(52, sessions=30)
        expected = pipeline.finish()
        assert expected.outputs, "the input has no outputs"
        assert "Traceback" not in pipeline.job.log() + pipeline.publisher.log()

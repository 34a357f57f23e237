"""A topic id never breaks an outbox-id apart."""

import pytest

from service.kafka.topic_ids import topic_id_text


@pytest.mark.guarantee(50)
def test_a_topic_id_is_written_as_kafkas_tools_write_it() -> None:
    assert topic_id_text("38M/4aEKQV+rz+EyjpRySQ") == "38M_4aEKQV-rz-EyjpRySQ"

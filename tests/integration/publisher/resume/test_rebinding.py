"""A resume records a new place beside what others record meanwhile, never over it, and never beside another resume."""

from dataclasses import replace
from typing import Any

import psycopg
import pytest

from publisher.outbox.identity import bind, read_identity
from publisher.outbox.topic_ids import bind_topics
from publisher.resume.decision import Way
from publisher.resume.planner import ResumePlan, ResumeRequest
from publisher.resume.rebinding import Binding, rebind
from publisher.resume.resume import Resume
from service.errors import ContinuityError, FencedError
from tests.support.processes.publishers import settings_for


def bound(connection: psycopg.Connection[Any]) -> Binding:
    """An outbox that has delivered to topics a and b; a was made again, which somebody accepts."""
    bind(connection, "cluster", "outbox")
    bind_topics(connection, {"a": "a1", "b": "b1"})
    found = read_identity(connection)
    return Binding(
        found,
        "cluster",
        "outbox",
        {"a": "a2", "b": "b1"},
        found.system_identifier,
        found.timeline,
        {},
    )


def test_a_topic_that_a_publisher_bound_meanwhile_stays_bound(database: str) -> None:
    with psycopg.connect(database, autocommit=True) as connection:
        binding = bound(connection)
        bind_topics(connection, {"c": "c1"})
        rebind(connection, binding, {})
        assert read_identity(connection).output_topic_ids == {"a": "a2", "b": "b1", "c": "c1"}


def test_the_topics_of_another_cluster_are_not_those_of_this_one(database: str) -> None:
    with psycopg.connect(database, autocommit=True) as connection:
        rebind(connection, replace(bound(connection), cluster_id="other", topic_ids={}), {})
        found = read_identity(connection)
        assert (found.cluster_id, found.output_topic_ids) == ("other", {})


@pytest.mark.parametrize(
    "meanwhile",
    [
        """UPDATE outbox.identity SET output_topic_ids = '{"a": "a3", "b": "b1"}'""",
        "UPDATE outbox.identity SET cluster_id = 'other'",
        "UPDATE outbox.identity SET system_identifier = system_identifier + 1",
        "UPDATE outbox.identity SET timeline = timeline + 1",
    ],
    ids=["topic", "cluster", "server", "timeline"],
)
def test_what_another_resume_recorded_meanwhile_is_not_written_over(database: str, meanwhile: Any) -> None:
    with psycopg.connect(database, autocommit=True) as connection:
        binding = bound(connection)
        connection.execute(meanwhile)
        before = read_identity(connection)
        with pytest.raises(ContinuityError, match=r"changed meanwhile.*run the command again"):
            rebind(connection, binding, {})
        assert read_identity(connection) == before


def test_a_second_resume_does_nothing_while_the_first_is_at_work(database: str) -> None:
    nothing: Any = None
    settings = settings_for(database, "127.0.0.1:1")
    with psycopg.connect(database, autocommit=True) as connection:
        plan = ResumePlan(ResumeRequest(Way.MIRROR), bound(connection), nothing, [], [], None)
        connection.execute("SET lock_timeout = '200ms'")
        with psycopg.connect(database, autocommit=True) as first:
            no_change = replace(plan, binding=replace(plan.binding, topic_ids={"a": "a1", "b": "b1"}))
            Resume(first, settings, nothing).act(no_change, lambda _: True, lambda _: None)
            with pytest.raises(FencedError, match="another `publisher resume` is at work"):
                Resume(connection, settings, nothing).act(plan, lambda _: True, lambda _: None)
            assert read_identity(connection).output_topic_ids["a"] == "a1"
        connection.execute("SET lock_timeout = '90s'")
        Resume(connection, settings, nothing).act(plan, lambda _: True, lambda _: None)
        assert read_identity(connection).output_topic_ids["a"] == "a2"

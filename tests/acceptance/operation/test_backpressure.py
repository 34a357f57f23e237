"""While too much waits to be delivered, the job commits no batch; it continues by itself."""

import pytest

from service.lifecycle.fault_points import Action, Fault
from tests.support.pipeline.pipeline import Pipeline
from tests.support.scraping import asked, free_port, scrape


@pytest.mark.guarantee(104)
@pytest.mark.faults
def test_a_publisher_that_is_away_holds_the_job_back_and_its_return_lets_it_continue(
    pipeline: Pipeline,
) -> None:
    pipeline.feed(21, sessions=300)
    port = free_port()
    bounds = {
        "OUTBOX_JOB__MAX_BACKLOG_EVENTS": "500",
        "OUTBOX_JOB__MAX_EVENTS_PER_BATCH": "1000",
        "OUTBOX_METRICS__PORT": str(port),
    }
    pipeline.job.start(**bounds)
    wait_for_the_brake(pipeline)
    waiting = pipeline.ask("SELECT sum(output_events) FROM outbox.batch")[0][0]
    assert 500 <= waiting < 5_000
    shown = pipeline.command_json("status")
    assert shown["alive"]
    assert "max_backlog_events is 500" in shown["held_back_because"]
    # Alive, and not ready: nothing moves.
    assert asked(port, "healthz")[0] == 200
    status, answer = asked(port, "readyz")
    assert (status, answer["reasons"]) == (503, [f"held back: {shown['held_back_because']}"])
    assert scrape(port)["outbox_held_back", ()] == 1

    # A stop drops the batch that waits, computed, for its commit.
    batches = pipeline.batches()
    assert pipeline.job.terminate() == 0, pipeline.job.tail()
    assert pipeline.batches() == batches
    # So does a failure of the one behind it, which nothing else waits for.
    pipeline.faults.write(Fault("query.before_action", Action.RAISE, hit=2))
    pipeline.job.start(**bounds, **pipeline.armed)
    pipeline.wait_until(pipeline.restarts, "the next attempt", alive=(pipeline.job,))
    wait_for_the_brake(pipeline)
    assert pipeline.restarts() == ["InjectedFaultError"]
    assert "batch_still_running" not in pipeline.job.log()
    assert pipeline.batches() == batches

    expected = pipeline.expectation()
    pipeline.publisher.start()
    pipeline.complete(expected)
    pipeline.wait_until(lambda: asked(port, "readyz")[0] == 200, "a job that is ready", alive=(pipeline.job,))
    assert pipeline.job.log().count("held_back_over") >= 1
    pipeline.stop()
    pipeline.assert_exactly_once(expected)


def wait_for_the_brake(pipeline: Pipeline) -> None:
    pipeline.wait_until(
        lambda: pipeline.ask("SELECT held_back_since FROM outbox.writer")[0][0],
        "the brake",
        alive=(pipeline.job,),
    )

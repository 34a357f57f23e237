"""What the job counts is what the ledger says; it is ready while it gets on, and alive whatever happens to its servers."""

from pathlib import Path

import pytest

from devstack.kafka import KafkaServer
from devstack.postgres import Postgres
from tests.support.pipeline.pipeline import Pipeline
from tests.support.scraping import asked, by_label, free_port, scrape

COUNTERS = (
    "input_events",
    "sessions",
    "output_events",
    "output_bytes",
    "duplicate_events",
)


@pytest.mark.guarantee(132)
@pytest.mark.timeout(900)
def test_metrics_agree_with_the_ledger_and_ready_means_that_the_job_gets_on(
    own_postgres: Postgres, kafka: KafkaServer, topic_prefix: str, tmp_path: Path
) -> None:
    port = free_port()
    options = {"metrics": {"job_port": port, "refresh_s": 0.2}, "restart": {"delay_s": 0.5, "max_delay_s": 2}}
    with Pipeline(
        own_postgres.dsn(), kafka.bootstrap_servers, topic_prefix, tmp_path, options=options
    ) as pipeline:
        job = pipeline.job
        pipeline.feed(31, sessions=150)
        expected = pipeline.expectation()
        job.start()
        pipeline.wait_until(lambda: asked(port, "readyz")[0], "an answer", alive=(job,))
        status, answer = asked(port, "readyz")
        assert (status, answer["phase"], answer["ready"]) == (503, "starting", False)
        assert answer["reasons"][0].startswith("attempt 1 has been starting for")
        assert asked(port, "healthz")[0] == 200
        pipeline.wait_for_input(expected)
        pipeline.wait_until(lambda: asked(port, "readyz")[0] == 200, "a job that is ready", alive=(job,))
        assert_metrics_agree(pipeline, port)
        assert asked(port, "readyz")[1]["run"]["restored"] == "fresh"

        own_postgres.stop()
        # Nothing is to be written, and still the job could not: its heartbeat says so.
        wait_for_reason(pipeline, port, "the heartbeat cannot be written")
        pipeline.feed(32, sessions=20)
        wait_for_reason(pipeline, port, "attempt 1 failed, the next one begins in")
        status, answer = asked(port, "healthz")
        assert (status, answer["healthy"], answer["reasons"]) == (200, True, [])
        assert scrape(port)["outbox_postgres_up", ()] == 0
        own_postgres.start()
        pipeline.connect()
        pipeline.wait_until(
            lambda: asked(port, "readyz")[0] == 200, "a job that is ready again", alive=(job,)
        )
        assert asked(port, "readyz")[1]["run"]["restored"] == "position"
        assert sum(by_label(scrape(port), "outbox_restarts_total").values()) >= 1
        pipeline.wait_for_input(pipeline.expectation())
        assert_counters_agree(pipeline, port)
        assert job.terminate() == 0, job.tail()


def assert_counters_agree(pipeline: Pipeline, port: int) -> None:
    """The counters are the ledger's sums, over all attempts of the process: none is counted twice or forgotten."""

    def timed() -> bool:
        # A batch is counted right after its commit, and its action last.
        ((batches,),) = pipeline.ask("SELECT count(*) FROM outbox.batch")
        return 0 < by_label(scrape(port), "outbox_batch_phase_seconds_count")["action"] == int(batches)

    pipeline.wait_until(timed, "the newest batch to be counted")
    found = scrape(port)
    ((batches, *sums),) = pipeline.ask(
        "SELECT count(*), sum(input_events), sum(sessions), sum(output_events), sum(output_bytes), sum(duplicate_events)"
        " FROM outbox.batch"
    )
    assert {name: found[f"outbox_{name}_total", ()] for name in COUNTERS} == dict(
        zip(COUNTERS, sums, strict=True)
    )
    assert found["outbox_batches_total", ()] == batches


def assert_metrics_agree(pipeline: Pipeline, port: int) -> None:
    """What was counted is what the ledger has; the gauges come with the next look."""
    assert_counters_agree(pipeline, port)
    found = scrape(port)
    ((batches,),) = pipeline.ask("SELECT count(*) FROM outbox.batch")
    letters = dict(pipeline.ask("SELECT reason, count(*) FROM outbox.dead_letter GROUP BY reason"))
    counted = by_label(found, "outbox_dead_letters_total")
    assert {reason: count for reason, count in counted.items() if count} == letters
    phases = by_label(found, "outbox_batch_phase_seconds_count")
    assert phases == dict.fromkeys(("action", "open", "assemble", "transform", "prepare", "commit"), batches)
    assert by_label(found, "outbox_batch_phase_seconds_sum")["action"] > 0
    pipeline.wait_until(
        lambda: 0 < by_label(scrape(port), "outbox_spark_phase_seconds_count").get("addBatch", 0) <= batches,
        "the times that Spark reports",
    )
    generation = {
        "restored": "fresh",
        "generation": "1",
        "reason": "first",
        "policy": "skip",
        "revision": "0",
    }
    assert found["outbox_run_info", tuple(sorted(generation.items()))] == 1

    def looked() -> bool:
        gauges = scrape(port)
        lag = [value for (name, _), value in gauges.items() if name == "outbox_input_lag_offsets"]
        letters_open = by_label(gauges, "outbox_open_dead_letters")
        ((open_sessions,),) = pipeline.ask(
            "SELECT sum((p.value->>'sessions')::int) FROM (SELECT * FROM outbox.batch ORDER BY batch_id DESC LIMIT 1) b,"
            " jsonb_each(b.open_state) t, jsonb_each(t.value) p"
        )
        return (
            lag == [0, 0, 0]
            and {reason: count for reason, count in letters_open.items() if count} == letters
            and gauges["outbox_open_sessions", ()] == open_sessions
        )

    pipeline.wait_until(looked, "gauges that agree with the outbox")


def wait_for_reason(pipeline: Pipeline, port: int, reason: str) -> None:
    """Wait until the job is not ready for this reason."""

    def is_reason() -> bool:
        status, answer = asked(port, "readyz")
        return status == 503 and any(reason in each for each in answer["reasons"])

    pipeline.wait_until(is_reason, reason, alive=(pipeline.job,))

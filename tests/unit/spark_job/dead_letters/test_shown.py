"""The report of a retry: what an exception says makes no line of it."""

from spark_job.dead_letters.outcome import Failed, RetryOutcome
from spark_job.dead_letters.shown import outcome_lines


def test_an_exception_that_quotes_an_event_of_several_lines_stays_below_its_letter() -> None:
    said = "ValueError: odd\nletters retried: 5"
    outcome = RetryOutcome(failed=[Failed(7, said, f"Traceback (most recent call last):\n\n{said}\n")])
    lines = "\n".join(outcome_lines(outcome, dry_run=False)).split("\n")
    assert lines == [
        "letters retried: 0, output events: 0",
        "failed again 7: ValueError: odd\\nletters retried: 5",
        *("  Traceback (most recent call last):", "  ", "  ValueError: odd", "  letters retried: 5"),
    ]

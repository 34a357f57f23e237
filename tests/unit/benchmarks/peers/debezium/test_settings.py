"""How Debezium is set up: what the two guarantees differ in, and where it reads and writes."""

from pathlib import Path

from benchmarks.peers.debezium.settings import Choice, connector_settings, debezium_choices, worker_settings

DSN = "postgresql://postgres@127.0.0.1:5432/bench"


def worker(choice: Choice) -> dict[str, str]:
    return dict(worker_settings("127.0.0.1:9092", 8083, "group", Path("/plugins"), choice))


def test_only_exactly_once_has_connects_transactions() -> None:
    for choice, support, connector in (
        (Choice(), "disabled", "requested"),
        (Choice(is_exactly_once=True), "enabled", "required"),
    ):
        assert worker(choice)["exactly.once.source.support"] == support
        assert connector_settings(DSN, "name", choice)["exactly.once.support"] == connector


def test_both_differ_in_nothing_else() -> None:
    once, at_least = worker(Choice(is_exactly_once=True)), worker(Choice())
    assert {key for key in once if once[key] != at_least[key]} == {"exactly.once.source.support"}


def test_the_connector_reads_from_the_address_and_database_of_the_dsn() -> None:
    settings = connector_settings(DSN, "name", Choice())
    found = [settings[f"database.{name}"] for name in ("hostname", "port", "user", "dbname")]
    assert found == ["127.0.0.1", "5432", "postgres", "bench"]


def test_offsets_are_stored_as_often_as_is_asked() -> None:
    assert worker(Choice(offset_flush_ms=60_000))["offset.flush.interval.ms"] == "60000"


def test_the_choices_are_those_asked_for_and_have_different_names() -> None:
    assert debezium_choices(False, False) == []
    both = debezium_choices(True, True, 60_000)
    assert [each.is_exactly_once for each in both] == [False, True]
    assert len({each.name for each in both}) == 2
    assert {each.offset_flush_ms for each in both} == {60_000}

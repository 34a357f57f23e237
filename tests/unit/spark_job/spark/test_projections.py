"""Few records of many partitions are interpreted, many are compiled; what the user chose stays."""

from typing import Any

from spark_job.spark.projections import Projections

MODE = "spark.sql.codegen.factoryMode"


class FakeFrame:
    """A batch that remembers what its session is told."""

    def __init__(self) -> None:
        self.told: list[tuple[str, str]] = []

    @property
    def sparkSession(self) -> Any:  # noqa: N802 - Spark's name
        return self

    @property
    def conf(self) -> Any:
        return self

    def set(self, name: str, value: str) -> None:
        self.told.append((name, value))


def test_the_session_is_told_when_the_kind_of_batch_changes_and_only_then() -> None:
    frame, projections = FakeFrame(), Projections.of({})
    for records, partitions in [(1_000_000, 4), (400, 4), (300, 200), (1_000_000, 4), (2_000_000, 4)]:
        projections.suit(frame, records, partitions)  # type: ignore[arg-type]
    assert frame.told == [(MODE, "NO_CODEGEN"), (MODE, "FALLBACK")]


def test_many_partitions_make_few_records_of_each_out_of_many() -> None:
    frame, projections = FakeFrame(), Projections.of({})
    projections.suit(frame, 100_000, 200)  # type: ignore[arg-type]
    assert frame.told == [(MODE, "NO_CODEGEN")]


def test_the_users_own_choice_stays() -> None:
    frame, projections = FakeFrame(), Projections.of({MODE: "CODEGEN_ONLY"})
    projections.suit(frame, 10, 4)  # type: ignore[arg-type]
    assert frame.told == []


def test_a_batch_without_records_changes_nothing() -> None:
    frame, projections = FakeFrame(), Projections.of({})
    projections.suit(frame, 0, 0)  # type: ignore[arg-type]
    assert frame.told == []

"""Few records of many partitions are interpreted, many are compiled; small records are counted; what the user chose stays."""

from typing import Any

from spark_job.stream.projection_options import ProjectionOptions

MODE = "spark.sql.codegen.factoryMode"
RECORDS = "spark.sql.execution.arrow.maxRecordsPerBatch"
BYTES = "spark.sql.execution.arrow.maxBytesPerBatch"


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

    def values(self, name: str) -> list[str]:
        return [value for told, value in self.told if told == name]


def test_the_session_is_told_when_the_kind_of_batch_changes_and_only_then() -> None:
    frame, options = FakeFrame(), ProjectionOptions()
    for records, partitions in [(1_000_000, 4), (400, 4), (300, 200), (1_000_000, 4), (2_000_000, 4)]:
        options.suit(frame, records, partitions)  # type: ignore[arg-type]
    assert frame.values(MODE) == ["FALLBACK", "NO_CODEGEN", "FALLBACK"]
    assert frame.values(BYTES) == ["67108864"]


def test_many_partitions_make_few_records_of_each_out_of_many() -> None:
    frame = FakeFrame()
    ProjectionOptions().suit(frame, 100_000, 200)  # type: ignore[arg-type]
    assert frame.values(MODE) == ["NO_CODEGEN"]


def test_small_records_are_counted_and_great_or_unknown_ones_weighed() -> None:
    frame, options = FakeFrame(), ProjectionOptions()
    for mean in [None, 150.0, 4_096.0, 4_097.0, None, 10.0]:
        options.suit(frame, 100_000, 4, mean)  # type: ignore[arg-type]
    assert frame.values(RECORDS) == ["100000", "1024", "100000", "1024"]
    assert frame.values(BYTES) == ["67108864", "2147483647", "67108864", "2147483647"]


def test_the_users_own_choice_stays() -> None:
    frame, options = FakeFrame(), ProjectionOptions({MODE: "CODEGEN_ONLY", RECORDS: "10", BYTES: "1000"})
    options.suit(frame, 10, 4, 150.0)  # type: ignore[arg-type]
    assert frame.told == []


def test_a_batch_without_records_is_no_special_case() -> None:
    frame = FakeFrame()
    ProjectionOptions().suit(frame, 0, 0)  # type: ignore[arg-type]
    assert frame.values(MODE) == ["FALLBACK"]

"""`spark-job clock`: what it writes, says and refuses; Kafka is a list of ends."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import orjson
import pytest
import structlog

from service.errors import RefusedError, SettingsError, UnavailableError
from service.kafka.reading import NamedPartition
from service.observability import logs
from spark_job.commands import clock
from spark_job.input.offsets import Offsets, TopicPartition
from spark_job.input.topics import InputTopics


class Kafka:
    """Two partitions, of which only the second one gets records by itself; the looks that `fails` names end so."""

    def __init__(self, looks: int, fails: dict[int, Exception] | None = None) -> None:
        self.ends = [5, 7]
        self.written: list[NamedPartition] = []
        self._looks, self._fails, self._seen = looks, fails or {}, 0

    def describe(self) -> InputTopics:
        self._seen += 1
        if self._seen > self._looks:
            raise RefusedError("the test is over")
        if self._seen in self._fails:
            raise self._fails[self._seen]
        return InputTopics({"in": "id"}, {"in": [0, 1]})

    def bounds(self, _topics: InputTopics, where: str) -> Offsets:
        assert where == "latest", "what is not committed is no silence"
        self.ends[1] += 1
        return Offsets({TopicPartition("id", number): end for number, end in enumerate(self.ends)})

    def write(self, _settings: object, places: Iterable[NamedPartition]) -> dict[NamedPartition, int]:
        found = {}
        for topic, partition in places:
            found[topic, partition] = self.ends[partition]
            self.ends[partition] += 1
            self.written.append((topic, partition))
        return found


@pytest.fixture
def config(tmp_path: Path) -> Path:
    """Settings with clock records."""
    file = tmp_path / "outbox.toml"
    file.write_text('[source]\ntopics = ["in"]\n[session]\nclock_records = true\n', "utf-8")
    return file


def use(monkeypatch: pytest.MonkeyPatch, kafka: Kafka) -> None:
    @contextmanager
    def asking(*_: Any) -> Iterator[Kafka]:
        yield kafka

    monkeypatch.setattr(clock, "kafka_input", asking)
    monkeypatch.setattr(clock, "write_clock_records", kafka.write)


@pytest.mark.parametrize("as_json", [True, False])
def test_one_round_writes_to_what_was_quiet_meanwhile(
    monkeypatch: pytest.MonkeyPatch, config: Path, capsys: pytest.CaptureFixture[str], *, as_json: bool
) -> None:
    kafka = Kafka(looks=2)
    use(monkeypatch, kafka)
    clock.clock(config, as_json=as_json, quiet_for="1ms")
    assert kafka.written == [("in", 0)]
    said = capsys.readouterr().out
    if as_json:
        row = {"topic": "in", "partition": 0, "offset": 5}
        assert orjson.loads(said) == {"written": [row], "partitions": 2}
    else:
        assert said == "in/0: clock record at offset 5\nclock records written into 1 of 2 partitions\n"


def test_as_a_service_it_writes_again_and_outlives_an_outage(
    monkeypatch: pytest.MonkeyPatch, config: Path
) -> None:
    kafka = Kafka(looks=9, fails={3: UnavailableError("Kafka is away")})
    use(monkeypatch, kafka)
    monkeypatch.setattr(logs, "configure", lambda _settings: None)
    with structlog.testing.capture_logs() as logged, pytest.raises(RefusedError, match="the test is over"):
        clock.clock(config, quiet_for="1ms", every="2ms")
    assert set(kafka.written) == {("in", 0)}
    assert len(kafka.written) > 3
    said = [line["event"] for line in logged if line["event"].startswith("clock_records")]
    assert said.count("clock_records_not_written") == 1
    assert said.count("clock_records_written") == len(kafka.written)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"quiet_for": "soon"}, "--quiet-for 'soon' is no pause"),
        ({"every": "0s"}, "--every '0s' is no pause"),
        ({"every": "1s", "as_json": True}, "--json prints its document when the command ends"),
    ],
)
def test_what_makes_no_sense_is_refused(config: Path, options: dict[str, Any], says: str) -> None:
    with pytest.raises(SettingsError, match=says):
        clock.clock(config, **options)


def test_it_writes_nothing_that_the_job_takes_for_malformed(tmp_path: Path) -> None:
    file = tmp_path / "outbox.toml"
    file.write_text("", "utf-8")
    with pytest.raises(SettingsError, match=r"\[session\] clock_records is not set"):
        clock.clock(file)

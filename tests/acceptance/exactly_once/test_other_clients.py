"""What docs/consumers.md has other clients set keeps the outputs of aborted transactions from them; their defaults do not."""

import os
import re
import shlex
import subprocess
from collections.abc import Callable, Iterator, Sequence
from importlib.resources import files
from pathlib import Path

import pytest
from confluent_kafka import Producer
from pyspark.sql import SparkSession

from devstack.kafka import KafkaServer
from devstack.topics import create_topics
from service.settings import JobSettings
from spark_job.spark.jars import java_executable, resolve
from spark_job.spark.lazy_session import LazySession
from tests.support.pages.markdown import code_block

# The job ignores it, too (spark_job/spark/session.py).
pytestmark = pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas:FutureWarning")

PAGE = Path("docs/consumers.md")
BROKER = files("devstack") / "jars.lock"
COMMITTED = ["1 T/0/1/0 -", "3 T/0/3/0 1"]
"""Value, outbox-id and revision of each committed output."""
ALL = ["1 T/0/1/0 -", "2 T/0/2/0 -", "3 T/0/3/0 1", "4 T/0/4/0 -"]
PROGRAM = """
import static java.nio.charset.StandardCharsets.UTF_8;
import java.time.Duration;
import java.util.List;
import java.util.Properties;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.serialization.StringDeserializer;

public class Reader {
    public static void main(String[] arguments) {
        Properties props = new Properties();
        props.put("bootstrap.servers", arguments[0]);
        SETTINGS
        var partition = new TopicPartition(arguments[1], 0);
        try (var consumer = new KafkaConsumer<>(props, new StringDeserializer(), new StringDeserializer())) {
            consumer.assign(List.of(partition));
            consumer.seekToBeginning(List.of(partition));
            long end = consumer.endOffsets(List.of(partition)).get(partition);
            while (consumer.position(partition) < end) {
                for (var record : consumer.poll(Duration.ofSeconds(1))) {
                    HEADERS
                    String text = revision == null ? "-" : new String(revision.value(), UTF_8);
                    System.out.println(record.value() + " " + id + " " + text);
                }
            }
        }
    }
}
"""


@pytest.fixture
def topic(kafka: KafkaServer, topic_prefix: str) -> str:
    """A topic whose second and fourth transaction were aborted."""
    name = f"{topic_prefix}outputs"
    create_topics(kafka.bootstrap_servers, {name: (1, {})})
    producer = Producer(
        {
            "bootstrap.servers": kafka.bootstrap_servers,
            "transactional.id": f"{topic_prefix}sender",
            "log_level": 0,
        }
    )
    producer.init_transactions(30)
    for number in range(1, 5):
        producer.begin_transaction()
        revision = [("outbox-revision", b"1")] if number == 3 else []
        headers = [("outbox-id", b"T/0/%d/0" % number), *revision]
        producer.produce(name, b"%d" % number, b"key", 0, headers=headers)  # type: ignore[arg-type]
        producer.flush(30)
        (producer.abort_transaction if number % 2 == 0 else producer.commit_transaction)(30)
    return name


def with_java(jars: Sequence[Path], arguments: list[str]) -> list[str]:
    """The lines that a Java program prints."""
    command = [java_executable(), "-cp", os.pathsep.join(map(str, jars)), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=240)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_a_java_consumer(kafka: KafkaServer, topic: str, tmp_path: Path) -> None:
    lines = code_block(PAGE, "java", "props.put").splitlines()
    settings = [line for line in lines if line.startswith("props.put(")]
    headers = [line for line in lines if line not in settings]
    source = tmp_path / "Reader.java"

    def read(settings: list[str]) -> list[str]:
        source.write_text(
            PROGRAM.replace("SETTINGS", "\n".join(settings)).replace("HEADERS", "\n".join(headers))
        )
        return with_java(resolve(BROKER), [str(source), kafka.bootstrap_servers, topic])

    assert read(settings) == COMMITTED
    assert read([line for line in settings if "isolation.level" not in line]) == ALL


def test_kafkas_console_consumer(kafka: KafkaServer, topic: str) -> None:
    page = code_block(PAGE, "sh", "kcat").replace("\\\n", " ")
    name, *words = shlex.split(next(line for line in page.splitlines() if "console-consumer" in line))
    assert name == "kafka-console-consumer.sh"
    jars = [*resolve(BROKER), *resolve(Path(__file__).with_name("console_consumer.lock"))]
    own = {"localhost:9092": kafka.bootstrap_servers, "orders.totals": topic}

    def read(words: list[str]) -> list[str]:
        options = [*(own.get(word, word) for word in words), "--timeout-ms", "5000"]
        lines = with_java(jars, ["org.apache.kafka.tools.consumer.ConsoleConsumer", *options])
        # The log that says why it ended is on the same channel.
        rows = [line.split("\t") for line in lines if line.startswith("outbox-id:")]
        found = [(value, dict(each.split(":", 1) for each in headers.split(","))) for headers, value in rows]
        return [f"{value} {of['outbox-id']} {of.get('outbox-revision', '-')}" for value, of in found]

    assert read(words) == COMMITTED
    at = words.index("--isolation-level")
    assert read(words[:at] + words[at + 2 :]) == ALL


@pytest.fixture
def spark(tmp_path: Path) -> Iterator[SparkSession]:
    """Spark as the job starts it."""
    java = {"spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1"}
    session = LazySession(JobSettings(master="local[1]", cache=str(tmp_path), spark_options=java))
    try:
        yield session.get()
    finally:
        session.stop()


def test_sparks_source(kafka: KafkaServer, topic: str, spark: SparkSession, tmp_path: Path) -> None:
    options = dict(re.findall(r'\.option\("([^"]+)", "([^"]+)"\)', code_block(PAGE, "python", "outputs = (")))
    options |= {"kafka.bootstrap.servers": kafka.bootstrap_servers, "subscribe": topic}

    def row_of(value: bytes, headers: list[tuple[str, bytes]]) -> str:
        found = dict(headers)
        revision = found.get("outbox-revision", b"-").decode()
        return f"{value.decode()} {found['outbox-id'].decode()} {revision}"

    def read(options: dict[str, str]) -> list[str]:
        rows = spark.read.format("kafka").options(**options).load().orderBy("offset").collect()
        return [row_of(bytes(row.value), [(h.key, bytes(h.value)) for h in row.headers]) for row in rows]

    def stream(options: dict[str, str]) -> list[str]:
        out = tmp_path / f"stream-{len(options)}"
        source = spark.readStream.format("kafka").options(**options, startingOffsets="earliest").load()
        query = (
            source.writeStream.format("parquet")
            .option("checkpointLocation", str(out / "checkpoint"))
            .trigger(availableNow=True)
            .start(str(out / "rows"))
        )
        assert query.awaitTermination(240)
        rows = spark.read.parquet(str(out / "rows")).orderBy("offset").collect()
        return [row_of(bytes(row.value), [(h.key, bytes(h.value)) for h in row.headers]) for row in rows]

    ways: list[Callable[[dict[str, str]], list[str]]] = [read, stream]
    for way in ways:
        assert way(options) == COMMITTED
        assert way({name: value for name, value in options.items() if "isolation" not in name}) == ALL

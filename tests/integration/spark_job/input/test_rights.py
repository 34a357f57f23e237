"""On a Kafka with ACLs the rights that docs/ecosystem.md lists for the job are enough, and each of them is needed."""

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
import structlog
from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AclBinding  # type: ignore[attr-defined]

from devstack.topics import create_topics
from service.errors import ContinuityError, RefusedError, SettingsError, UnavailableError
from service.settings import KafkaSettings, Settings
from spark_job.input.clock_records import NEEDS, write_clock_records
from spark_job.input.reading import committed_records
from spark_job.input.topics import KafkaInput, kafka_input
from spark_job.recovery.outbox_behind import Delivered, newest_delivered
from tests.support.lanes import COMMIT, RECORD
from tests.support.secured.kafka import PASSWORD, SecuredKafka
from tests.support.secured.rights import CLOCK, JOB, single

OUTBOX = RECORD.outbox_uuid
INPUT, PROGRESS, GROUP = "session-in", f"outbox-progress-{OUTBOX}", "lag"
CLOCKED = "session-clocked"


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredKafka]:
    """A broker with an input topic and a progress record."""
    server = SecuredKafka(tmp_path_factory.mktemp("guarded"))
    try:
        server.start()
        compacted = {"cleanup.policy": "compact"}
        create_topics(server.bootstrap_servers, {INPUT: (2, {}), PROGRESS: (1, compacted)})
        producer = Producer({"bootstrap.servers": server.bootstrap_servers})
        for number in range(3):
            producer.produce(INPUT, b"%d" % number, partition=0)
        producer.produce(PROGRESS, RECORD.encode(), key="1/0")
        assert producer.flush(30) == 0
        yield server
    finally:
        server.destroy()


@pytest.mark.guarantee(113)
def test_the_listed_rights_are_enough_and_each_is_needed(kafka: SecuredKafka, tmp_path: Path) -> None:
    secret = tmp_path / "secret.toml"
    secret.write_text(f'"sasl.password" = "{PASSWORD}"\n', "utf-8")
    settings = KafkaSettings(
        bootstrap_servers=kafka.secured_servers, options=kafka.options(), secret_options_file=secret
    )
    client = KafkaInput(settings, [INPUT], "")
    missing = {(each.kind, each.name, each.operation): each for each in single(JOB)}

    def needed(*what: str) -> AclBinding:
        return missing.pop(what).acl(input=INPUT, group=GROUP)  # type: ignore[arg-type]

    with pytest.raises(RefusedError, match="Describe on topic 'session-in' is needed"):
        client.describe()
    kafka.allow(needed("topic", "{input}", "Read"))
    topics = client.describe()  # Read includes Describe
    assert set(client.bounds(topics, "readable").values()) == {0, 3}
    with pytest.raises(RefusedError, match=f"DescribeConfigs on topic '{INPUT}' is needed"):
        client.check_policies()
    kafka.allow(needed("topic", "{input}", "DescribeConfigs"))
    client.check_policies()

    # What finds open sessions again: its client looks up a group that nobody joins, perhaps only after the few records have come. So one
    # more is asked for than there is.
    with pytest.raises(
        KafkaException,
        match=r"GROUP_AUTHORIZATION_FAILED.*Describe on consumer group 'outbox-rebuild' is needed",
    ):
        list(committed_records(settings.client(), INPUT, 0, 0, 4, 30))
    kafka.allow(needed("group", "outbox-rebuild", "Describe"))
    assert sum(map(len, committed_records(settings.client(), INPUT, 0, 0, 3, 10))) == 3

    # What shows whether the database lost its end: not to be read is not to be taken for empty.
    whole = Settings(kafka=settings)
    with pytest.raises(UnavailableError, match=f"Read on topic '{PROGRESS}' is needed"):
        newest_delivered(whole, OUTBOX)
    kafka.allow(needed("topic", "outbox-progress-", "Read"))
    said = ""
    try:
        newest_delivered(whole, OUTBOX)
    except UnavailableError as error:
        said = str(error)
    # The group may be looked up only after the few records have come.
    assert not said or f"Describe on consumer group '{PROGRESS}-look' is needed" in said
    kafka.allow(needed("group", "outbox-progress-", "Describe"))
    assert newest_delivered(whole, OUTBOX) == [Delivered(4, COMMIT, epoch=1)]

    # What lag tools see: a refusal is a warning.
    for granted in (False, True):
        shown = KafkaInput(settings, [INPUT], GROUP)
        with structlog.testing.capture_logs() as logged:
            shown.show_progress(client.bounds(topics, "latest"), topics)
            shown.close()
        warnings = [(line["event"], line["group"]) for line in logged]
        assert warnings == ([] if granted else [("group_offsets_not_committed", GROUP)])
        if not granted:
            kafka.allow(needed("group", "{group}", "Read"))
    assert not missing


@pytest.mark.guarantee(113)
def test_clock_records_need_the_right_to_write_and_no_other(kafka: SecuredKafka) -> None:
    create_topics(kafka.bootstrap_servers, {CLOCKED: (2, {})})
    options = kafka.options() | {"sasl.password": PASSWORD}
    settings = Settings(
        kafka=KafkaSettings(bootstrap_servers=kafka.secured_servers, options=options),
        source={"topics": [CLOCKED]},  # type: ignore[arg-type]
    )
    with kafka_input(settings, NEEDS) as asking:
        with pytest.raises(
            RefusedError, match=f"Describe on topic '{CLOCKED}' is needed.*It needs Write on the"
        ):
            asking.describe()
        with pytest.raises(RefusedError, match="It needs Write on the input topics"):
            write_clock_records(settings.kafka, [(CLOCKED, 1)])
        (granted,) = single(CLOCK)
        kafka.allow(granted.acl(input=CLOCKED))
        topics = asking.describe()
        assert set(asking.bounds(topics, "latest").values()) == {0}
        assert write_clock_records(settings.kafka, [(CLOCKED, 1), (CLOCKED, 0)]) == {
            (CLOCKED, 0): 0,
            (CLOCKED, 1): 0,
        }
        assert set(asking.bounds(topics, "latest").values()) == {1}


@pytest.mark.guarantee(180)
def test_a_progress_record_that_cannot_be_read_is_named_and_a_record_of_no_lane_is_passed_over(
    kafka: SecuredKafka,
) -> None:
    outbox = uuid.uuid4()
    topic = f"outbox-progress-{outbox}"
    create_topics(kafka.bootstrap_servers, {topic: (2, {"cleanup.policy": "compact"})})
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers})
    settings = Settings(kafka=KafkaSettings(bootstrap_servers=kafka.bootstrap_servers))
    producer.produce(topic, RECORD.encode(), key="1/0", partition=0)
    producer.produce(topic, b"rubbish", key="of something else", partition=0)
    assert producer.flush(30) == 0
    assert newest_delivered(settings, outbox) == [Delivered(4, COMMIT, epoch=1)]
    producer.produce(topic, b"rubbish", key="1/1", partition=1)
    assert producer.flush(30) == 0
    with pytest.raises(ContinuityError, match=rf"{topic}: not a progress record, of 7 bytes"):
        newest_delivered(settings, outbox)


@pytest.mark.guarantee(149)
def test_a_compacted_input_topic_is_refused(kafka: SecuredKafka) -> None:
    client = KafkaInput(KafkaSettings(bootstrap_servers=kafka.bootstrap_servers), [INPUT, PROGRESS], "")
    with pytest.raises(SettingsError, match=f"'{PROGRESS}' has cleanup.policy=compact"):
        client.check_policies()

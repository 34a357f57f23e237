"""The lag of the input is that of the topic the ledger is about, not of another one under its name."""

from confluent_kafka import Producer

from devstack.kafka import KafkaServer
from devstack.topics import create_topics
from service.settings import KafkaSettings
from spark_job.input.offsets import Offsets, TopicPartition
from spark_job.input.topics import KafkaInput
from spark_job.status.input_lag import Ends, InputLag


def test_the_lag_is_that_of_the_topic_and_of_none_that_has_its_name(
    kafka: KafkaServer, topic_prefix: str
) -> None:
    topic = f"{topic_prefix}lag"
    create_topics(kafka.bootstrap_servers, {topic: (2, {})})
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers})
    for _ in range(5):
        producer.produce(topic, b"v", partition=0)
    producer.flush()
    settings = KafkaSettings(bootstrap_servers=kafka.bootstrap_servers)
    source = KafkaInput(settings, (topic,), "")
    topic_id = source.describe().ids[topic]
    source.close()
    lag = InputLag(settings)
    ends = Offsets({TopicPartition(topic_id, 0): 2, TopicPartition(topic_id, 1): 0})
    assert sorted(lag.read(Ends({topic_id: topic}, ends))) == [(topic, 0, 3), (topic, 1, 0)]
    assert lag.read(Ends({"dG9waWMgaWQgZm9yIHRlc3Q": topic}, ends)) == []

"""A job describes its topics in each batch, for years: what the client keeps of an answer is given up."""

import gc

from confluent_kafka import Uuid

from devstack.kafka import KafkaServer
from devstack.topics import create_topics
from service.kafka.client import admin_client
from service.kafka.topics import known_topics
from service.settings import KafkaSettings

ROUNDS = 50


def ids() -> int:
    """Topic ids that this process keeps."""
    gc.collect()
    return sum(isinstance(each, Uuid) for each in gc.get_objects())


def test_descriptions_of_topics_leave_no_topic_id(kafka: KafkaServer, topic_prefix: str) -> None:
    names = [f"{topic_prefix}{number}" for number in range(3)]
    create_topics(kafka.bootstrap_servers, dict.fromkeys(names, (1, {})))
    admin = admin_client(KafkaSettings(bootstrap_servers=kafka.bootstrap_servers))
    before = ids()
    for _ in range(ROUNDS):
        described = known_topics(admin, names, 30)
    texts = {str(topic.topic_id) for topic in described.values()}
    assert len(texts) == len(names)
    del described
    assert ids() == before
    admin.close()

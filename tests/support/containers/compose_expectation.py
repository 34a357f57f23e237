"""What must come out of both of the example's input topics, by the reference model and the example's own transform."""

from functools import reduce

from confluent_kafka import TopicCollection
from confluent_kafka.admin import AdminClient

from examples.clickstream.topics import CLICKS, CONFIG, LOAD
from examples.clickstream.transform import transform
from service.kafka.topic_ids import topic_id_text
from service.settings import load_settings
from tests.support.pipeline.expectation import Expectation, Share, expect, read_topic
from tests.support.queries import query

INPUTS = (CLICKS, LOAD)


def of_inputs(bootstrap: str) -> dict[str, Expectation]:
    """Read the topics to their ends of now, and judge them: {topic id: what must come out}."""
    session = load_settings(CONFIG).session
    # By a name of its own: the answers come from its thread, which ends when nothing names it any more.
    admin = AdminClient({"bootstrap.servers": bootstrap})
    described = admin.describe_topics(TopicCollection(list(INPUTS)))
    found = {}
    for topic, answer in described.items():
        topic_id = topic_id_text(answer.result().topic_id)
        records = read_topic(bootstrap, topic)
        found[topic_id] = expect(records, topic, topic_id, session, Share(transform))
    return found


def together(parts: dict[str, Expectation]) -> Expectation:
    """One expectation of all topics."""
    return reduce(Expectation.followed_by, parts.values())


def is_dealt_with(dsn: str, parts: dict[str, Expectation]) -> bool:
    """Whether the job has dealt with all of the input, and the publishers have delivered all that came of it."""
    ((done,),) = query(
        dsn, "SELECT end_offsets FROM outbox.batch WHERE kind = 'stream' ORDER BY batch_id DESC LIMIT 1"
    )
    for topic_id, part in parts.items():
        reached = done.get(topic_id, {})
        if any(reached.get(str(partition), 0) < end for partition, end in part.ends.items()):
            return False
    ((all_delivered,),) = query(
        dsn,
        "SELECT bool_and(cursor_key IS NULL AND cursor_batch = (SELECT max(batch_id) FROM outbox.batch)) FROM outbox.lane"
        " WHERE epoch = (SELECT max(epoch) FROM outbox.lane_epoch)",
    )
    return bool(all_delivered)

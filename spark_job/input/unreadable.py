"""Which record Spark cannot read, because it cannot hold its timestamp. Spark's own error names no offset."""

from itertools import chain

from service.settings import KafkaSettings
from spark_job.input.offsets import Offsets
from spark_job.input.reading import committed_records

# Spark keeps microseconds in 64 bits.
_MAX_MS = (2**63 - 1) // 1000


def find(kafka: KafkaSettings, start: Offsets, end: Offsets, topics: dict[str, str]) -> str | None:
    """Return what to do about the first such record in [start, end), None where there is none. `topics`: {topic id: topic}.

    Raises as `committed_records` does.
    """
    for where, last in end.items():
        topic = topics[where.topic_id]
        first = start.at(where)
        blocks = committed_records(
            kafka.client(), topic, where.partition, first, last, kafka.request_timeout_s
        )
        for message in chain.from_iterable(blocks):
            time_ms = message.timestamp()[1]
            if not -_MAX_MS <= time_ms <= _MAX_MS:
                offset = message.offset()
                return (
                    f"the record at offset {offset} of {topic}/{where.partition} has the timestamp {time_ms} ms; Spark's Kafka source "
                    f"holds none beyond {_MAX_MS} ms and reads no record of the partition behind it. Delete the partition's records "
                    f"up to and with offset {offset} (kafka-delete-records, offset {offset + 1}), then `spark-job run "
                    "--accept-data-loss`; sessions that are open there are given up. message.timestamp.after.max.ms on the topic "
                    "refuses such records"
                )
    return None

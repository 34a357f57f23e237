"""A consumer as people write it, to kill and to freeze: `python -m tests.support.consumer.program DSN SERVERS GROUP TOPIC OPTIONS`.

It writes each output into the table `effect`. OPTIONS: librdkafka's, in JSON. A value `slow` makes it wait in its transaction.
"""

import json
import sys
import time

import psycopg

from outbox_consumer import consume

EFFECTS = (
    "CREATE TABLE IF NOT EXISTS effect (number bigserial PRIMARY KEY, outbox_id text, revision int, partition int, "
    "record_offset bigint, value bytea)"
)


def main(dsn: str, servers: str, group: str, topic: str, options: str) -> None:
    """Consume until it is killed."""
    kafka = {"bootstrap.servers": servers, "group.id": group, "log_level": 0} | json.loads(options)
    with psycopg.connect(dsn) as connection:
        for output in consume(connection, kafka, [topic]):
            with output:
                connection.execute(
                    "INSERT INTO effect (outbox_id, revision, partition, record_offset, value) VALUES (%s, %s, %s, %s, %s)",
                    (str(output.outbox_id), output.revision, output.partition, output.offset, output.value),
                )
                if output.value == b"slow":
                    print("slow", flush=True)
                    time.sleep(3)


if __name__ == "__main__":
    main(*sys.argv[1:])

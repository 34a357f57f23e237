"""A warm Spark scan of a topic that throws the records away, with the job's own session and reader's options: a baseline.

    python -m benchmarks.scan BOOTSTRAP_SERVERS TOPIC

The last line is one JSON object.
"""

import json
import sys
import time

from service.settings import JobSettings, KafkaSettings
from spark_job.spark.session import start_session, stop_session
from spark_job.spark.work_folder import WorkFolder


def main(bootstrap_servers: str, topic: str) -> None:
    """Print the seconds that one warm scan of the topic takes."""
    folder = WorkFolder()
    try:
        spark = start_session(JobSettings(cache=str(folder.path)), folder)
        kafka = KafkaSettings(bootstrap_servers=bootstrap_servers)
        frame = (
            spark.read.format("kafka")
            .option("kafka.bootstrap.servers", kafka.bootstrap_servers)
            .option("subscribe", topic)
            .load()
        )
        seconds = 0.0
        for _ in range(2):  # the first one warms the JVM up
            began = time.monotonic()
            frame.select("key", "value", "offset").write.format("noop").mode("overwrite").save()
            seconds = time.monotonic() - began
        stop_session(spark)
    finally:
        folder.remove()
    print(json.dumps({"benchmark": "scan", "seconds": round(seconds, 2)}))


if __name__ == "__main__":
    main(*sys.argv[1:])

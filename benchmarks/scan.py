"""The baseline of the pipeline's benchmark: Spark reads the same topic and throws it away."""

import sys
import time

from db.settings import JobSettings
from spark_job.spark import start_session


def main(bootstrap_servers: str, topic: str) -> None:
    """Print the seconds that one warm scan of the topic takes."""
    spark = start_session(JobSettings(driver_memory="4g"))
    frame = (
        spark.read.format("kafka")
        .option("kafka.bootstrap.servers", bootstrap_servers)
        .option("subscribe", topic)
        .load()
    )
    seconds = 0.0
    for _ in range(2):  # the first one warms the JVM up
        began = time.monotonic()
        frame.select("key", "value", "offset").write.format("noop").mode("overwrite").save()
        seconds = time.monotonic() - began
    spark.stop()
    print(seconds)


if __name__ == "__main__":
    main(*sys.argv[1:])

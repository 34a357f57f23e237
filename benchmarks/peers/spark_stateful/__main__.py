"""The job itself: python -m benchmarks.peers.spark_stateful SETTINGS.json."""

import json
import pickle
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pandas as pd
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 - Spark's own documentation calls it so
from pyspark.sql.streaming.state import GroupState, GroupStateTimeout

from benchmarks.peers.outputs import output
from benchmarks.transforms import OUTPUTS
from spark_job.spark.jars import spark_connector_jars

_END = "end_event"
_TYPES = ["start_event", "entry_event", _END]


def assemble(key: tuple[bytes], frames: Iterable[pd.DataFrame], state: GroupState) -> Iterator[pd.DataFrame]:
    """Add the key's new events to those that are open; an end emits the session's outputs."""
    rows = pd.concat(list(frames)).sort_values("offset")
    open_events: list[bytes] = pickle.loads(state.get[0]) if state.exists else []
    outputs: list[bytes] = []
    for kind, at_ms, value in zip(rows["type"], rows["at_ms"], rows["value"], strict=True):
        if kind != _END:
            open_events.append(value)
        elif open_events:
            outputs += [output(int(at_ms), number) for number in range(OUTPUTS)]
            open_events = []
    if open_events:
        state.update((pickle.dumps(open_events),))
    elif state.exists:
        state.remove()
    yield pd.DataFrame({"key": [key[0]] * len(outputs), "value": outputs})


def main(settings: dict[str, Any]) -> None:
    """Run until killed."""
    builder = SparkSession.builder.master(settings["master"]).appName("sessions")
    builder = builder.config("spark.jars", ",".join(map(str, spark_connector_jars())))
    for name, value in settings["spark"].items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("WARN")
    events = (
        spark.readStream.format("kafka")
        .options(**settings["source"])
        .load()
        .select(
            "key",
            "offset",
            "value",
            F.get_json_object(F.col("value").cast("string"), "$.event_type").alias("type"),
            F.unix_millis("timestamp").alias("at_ms"),
        )
        .where(F.col("key").isNotNull() & F.col("type").isin(_TYPES))
    )
    outputs = events.groupBy("key").applyInPandasWithState(
        assemble,
        "key binary, value binary",
        "events binary",  # PySpark 4.2 cannot read the schema of an array there: KeyError: elementType
        "append",
        GroupStateTimeout.NoTimeout,
    )
    query = outputs.writeStream.format("kafka").outputMode("append").options(**settings["sink"]).start()
    query.awaitTermination()


if __name__ == "__main__":
    main(json.loads(Path(sys.argv[1]).read_text("utf-8")))

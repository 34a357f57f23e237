"""Send the options of the Kafka and schema registry clients, passwords included, to each task: in a local property, not in its function.

Spark pickles and broadcasts the function, and writes it to disk if an executor's memory is short. A local property travels with each task,
in memory only. The event log contains the properties of each job. It hides the value of a property with `secret` in its name
(`spark.redaction.regex`), but only if the context's configuration has a property of the same name.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

import orjson
import pyarrow as pa
from pyspark import SparkContext, TaskContext

from spark_job.assembly.task import AssemblyTask
from spark_job.assembly.task_errors import without_quotes

_PROPERTY = "outbox.secret.clients"


@dataclass(frozen=True)
class SparkTask:
    """The function of `mapInArrow`: an AssemblyTask without the clients' options, which the worker reads from the local property."""

    task: AssemblyTask

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Run the task. See AssemblyTask. No exception quotes an event."""
        context = TaskContext.get()
        sent = None if context is None else context.getLocalProperty(_PROPERTY)
        assert sent is not None, "the driver's thread has sent no options of the clients"
        task = replace(self.task, settings=replace(self.task.settings, **orjson.loads(sent)))
        return without_quotes(task(batches))


def without_secrets(task: AssemblyTask, context: SparkContext) -> SparkTask:
    """Return a task that Spark may pickle. The clients' options are sent with the jobs that this thread starts from now on."""
    context._conf.set(_PROPERTY, "")  # needed before the first job with the property: see above
    secret = {"kafka": dict(task.settings.kafka), "registry": dict(task.settings.registry)}
    context.setLocalProperty(_PROPERTY, orjson.dumps(secret).decode())
    return SparkTask(replace(task, settings=replace(task.settings, kafka={}, registry={})))

"""How the options of Kafka's and the schema registry's client, passwords among them, reach a task: beside the function, which is pickled.

Spark broadcasts that function, and writes it to disk whenever an executor's memory is short. It sends a local property with each task, in
memory only. The event log has the properties of each job. It hides the value of one with `secret` in its name
(`spark.redaction.regex`), if the context's configuration has one of that name as well.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

import orjson
import pyarrow as pa
from pyspark import SparkContext, TaskContext

from spark_job.assembly.task import AssemblyTask

_PROPERTY = "outbox.secret.clients"


@dataclass(frozen=True)
class SparkTask:
    """The function of `mapInArrow`: an AssemblyTask, whose clients' options the worker finds in its task's properties."""

    task: AssemblyTask

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Run the task. See AssemblyTask."""
        context = TaskContext.get()
        sent = None if context is None else context.getLocalProperty(_PROPERTY)
        assert sent is not None, "the driver's thread has sent no options of the clients"
        return replace(self.task, settings=replace(self.task.settings, **orjson.loads(sent)))(batches)


def without_secrets(task: AssemblyTask, context: SparkContext) -> SparkTask:
    """Return a task that Spark may pickle. The clients' options are sent with the jobs that this thread starts from now on."""
    context._conf.set(_PROPERTY, "")  # before the first job that has the secret property
    secret = {"kafka": dict(task.settings.kafka), "registry": dict(task.settings.registry)}
    context.setLocalProperty(_PROPERTY, orjson.dumps(secret).decode())
    return SparkTask(replace(task, settings=replace(task.settings, kafka={}, registry={})))

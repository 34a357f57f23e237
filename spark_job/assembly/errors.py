"""What ends a task. Spark hands failures on as text: by the names of these classes the driver knows them (failures/spark_text.py)."""


class TransformStoppedError(Exception):
    """The transform raised and `[transform] on_error` is "stop"."""


class CodeChangedError(Exception):
    """The worker's code is not the run's: a file was edited, or replaced by another version, under the running job."""


class OpenSessionsDifferError(Exception):
    """What was found again in Kafka is not what was open: input was deleted, compacted or replaced, or the code is another."""

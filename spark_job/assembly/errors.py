"""What ends a task. Spark hands failures on as text: by the names of these classes the driver knows them (failures/spark_text.py)."""


class TransformStoppedError(Exception):
    """The transform raised and `[transform] on_error` is "stop"."""


class OpenSessionsDifferError(Exception):
    """What was found again in Kafka is not what was open: input was deleted, compacted or replaced, or the code is another."""

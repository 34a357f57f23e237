"""Errors that end a task. Spark passes failures on as text, where the driver looks for these class names (failures/spark_text.py)."""


class TransformStoppedError(Exception):
    """The transform raised and `[transform] on_error` is "stop"."""


class OpenSessionsDifferError(Exception):
    """The sessions rebuilt from Kafka are not those that were open: input was deleted, compacted or replaced, or the code has changed."""

"""What stops the assembler. A bad record never does: it becomes a dead letter."""


class AssemblyError(Exception):
    """The assembler cannot go on."""


class BucketTooLarge(AssemblyError):  # noqa: N818 - the name is part of the contract
    """The open sessions of one bucket need more state than allowed."""

    def __init__(self, state_bytes: int, limit: int, open_sessions: int) -> None:
        super().__init__(
            f"the {open_sessions} open sessions of one bucket need {state_bytes} bytes of state, "
            f"over session.max_bucket_bytes = {limit}. Raise it if the executors have the memory, "
            f"or spread the sessions over more buckets (job.buckets), or shorten session.timeout_s"
        )
        self.state_bytes = state_bytes
        self.limit = limit


class UnknownStateVersion(AssemblyError):  # noqa: N818
    """A bucket's state was written in a format this version does not read."""

    def __init__(self, found: bytes, known: bytes) -> None:
        super().__init__(
            f"the bucket's state begins with {found!r}, this version reads {known!r}. "
            f"Run the version that wrote it, or `spark-job run --new-generation`, which reads the open "
            f"sessions again from Kafka"
        )


class InputSchemaError(AssemblyError):
    """The table of new records lacks a column or has one of another type."""

"""The settings of `publisher`."""

from typing import Annotated, Literal, Self

from pydantic import Field, StringConstraints, model_validator

from service.settings.section import Milliseconds, Section

TopicOrPrefix = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9._-]{1,249}\*?$")]
"""A topic, `orders`, or all topics with a prefix, `orders.*`."""


class PublisherSettings(Section):
    lanes: int = Field(default=8, ge=1, le=1024)
    """Lanes of the first epoch, read at the first start only; later: `publisher lanes set N`."""
    transactional_id_prefix: str = Field(default="outbox", min_length=1, max_length=100)
    """Prefix of each lane's transactional id."""
    progress_topic: str = Field(default="outbox-progress", pattern=r"^[A-Za-z0-9._-]{1,200}$")
    """Name of the compacted progress topic; the outbox uuid is appended."""
    progress_replication: int = Field(default=-1, ge=-1, le=32_767)
    """Replication factor of the new progress topic; -1: 3, at most the number of brokers."""
    output_topics: tuple[TopicOrPrefix, ...] = ()
    """Topics that outputs may go to: names, and prefixes that end in `*`. Empty: all but progress topics and Kafka's own."""
    create_topics: bool = False
    """Create missing output topics with the broker's defaults."""
    transaction_sessions: int = Field(default=1_000, ge=1, le=100_000)
    """Most rows (sessions of a key) of a Kafka transaction."""
    transaction_bytes: int = Field(default=16_777_216, ge=1_024, le=1_073_741_824)
    """Most bytes of rows of a Kafka transaction, or one larger row. A lane needs up to six times this in memory."""
    transaction_timeout_ms: int = Field(default=60_000, ge=1_000, le=900_000)
    """Kafka's `transaction.timeout.ms`: how long the broker waits for a dead publisher."""
    transactions_per_second: int = Field(default=100, ge=1, le=100_000)
    """Most transactions a second of one process; above it, lanes put several batches into one transaction."""
    poll_ms: Milliseconds = 1_000
    """Milliseconds after which a lane polls without a NOTIFY."""
    idle_progress_s: float = Field(default=5.0, ge=0.1, le=3_600)
    """Least seconds between two progress records of a lane without rows."""
    lease_s: float = Field(default=10.0, ge=1, le=600)
    """Seconds after which others take over the lanes of a process that hangs or whose machine is gone."""
    keep_deliveries_s: int = Field(default=259_200, ge=3_600, le=3_153_600_000)
    """Seconds to keep the log of deliveries (docs/retention.md)."""
    headers: tuple[Literal["batch", "session_key", "session_outputs"], ...] = ()
    """Headers beside `outbox-id`. Each costs speed."""
    cloudevents: bool = False
    """Send CloudEvents 1.0 in binary content mode: headers `ce_id`, `ce_type`, … (docs/ecosystem.md). Costs speed."""
    cloudevents_source: str = Field(default="/spark-outbox/{outbox}", min_length=1)
    """`ce_source`, a URI reference; `{outbox}` stands for the outbox uuid, `{topic}` for the output topic."""
    cloudevents_type: str = Field(default="{topic}", min_length=1)
    """`ce_type`; `{topic}` stands for the output topic."""
    cloudevents_content_type: str = Field(default="application/json", min_length=1)
    """`content-type` of every value, unless the transform sets it."""

    @model_validator(mode="after")
    def _idle_below_lease(self) -> Self:
        if self.poll_ms > self.lease_s * 500:
            raise ValueError(
                f"poll_ms ({self.poll_ms}) must be at most half of lease_s ({self.lease_s}), or leases run out between polls"
            )
        return self

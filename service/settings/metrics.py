"""The settings of the metrics and health endpoint of both services."""

from typing import Annotated

from pydantic import Field

from service.settings.section import EmptyIsNone, Section


class MetricsSettings(Section):
    port: int = Field(default=0, ge=0, le=65_535)
    """TCP port on which `publisher run` and `spark-job run` serve `/metrics`, `/healthz` and `/readyz` (docs/metrics.md); 0: none."""
    job_port: Annotated[int | None, EmptyIsNone] = Field(default=None, ge=0, le=65_535)
    """The port of `spark-job run`, for a host where both services read the same file. Empty: `port`."""
    host: str = Field(default="127.0.0.1", min_length=1)
    """Address to listen on; `0.0.0.0`: all of this host."""
    refresh_s: float = Field(default=5.0, ge=0.1, le=600)
    """Seconds between two queries for the outbox's metrics. A scrape gets the last result."""
    progress_s: float = Field(default=60.0, ge=1, le=86_400)
    """Seconds within which each lane, or the job's query, must have made progress, or `/readyz` returns 503."""
    hung_s: float = Field(default=60.0, ge=1, le=86_400)
    """Seconds that a loop may exceed the longest wait that its settings allow before `/healthz` returns 503."""

    def port_of_job(self) -> int:
        """Return the port of `spark-job run`."""
        return self.port if self.job_port is None else self.job_port

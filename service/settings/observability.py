"""How both services log, measure and trace."""

from typing import Annotated, Literal

from pydantic import Field, field_validator

from service.settings.section import EmptyIsNone, Section, require_address


class LogSettings(Section):
    level: Literal["DEBUG", "INFO", "WARNING", "ERROR"] = "INFO"
    """Least level that is written."""
    format: Literal["text", "json"] = "text"
    """Lines for people or for machines."""


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
    """Seconds beyond the longest wait that the settings allow a loop before `/healthz` returns 503."""

    def port_of_job(self) -> int:
        """Return the port of `spark-job run`."""
        return self.port if self.job_port is None else self.job_port


class TracingSettings(Section):
    endpoint: Annotated[str | None, EmptyIsNone] = Field(default=None, pattern=r"^https?://[^/\s]+(/\S*)?$")
    """A collector for OTLP over HTTP, for instance `http://127.0.0.1:4318/v1/traces` (docs/ecosystem.md#spans). Needs the extra `otel`.
    Empty: no spans."""
    timeout_s: float = Field(default=5.0, ge=0.1, le=60)
    """Seconds to wait for the collector. Spans that it does not take are lost."""
    propagate: bool = False
    """Copy the headers `traceparent` and `tracestate` of a session's end event to its outputs (docs/ecosystem.md#trace-context). Costs
    speed; needs neither `endpoint` nor the extra."""

    @field_validator("endpoint")
    @classmethod
    def _endpoint_is_an_address(cls, value: str | None) -> str | None:
        if value is not None:
            require_address(value)
        return value

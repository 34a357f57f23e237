"""The settings of tracing with OpenTelemetry, of both services."""

from typing import Annotated

from pydantic import Field, field_validator

from service.settings.section import EmptyIsNone, Section, require_address


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

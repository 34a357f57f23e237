"""The settings of the metrics endpoint."""

from pydantic import Field

from db.settings.section import Section


class MetricsSettings(Section):
    port: int = Field(default=0, ge=0, le=65_535)
    """TCP port on which `publisher run` serves Prometheus metrics at `/metrics`; 0: none."""
    host: str = Field(default="127.0.0.1", min_length=1)
    """Address it listens on; `0.0.0.0`: all of this host."""
    refresh_s: float = Field(default=5.0, ge=0.1, le=600)
    """Seconds between two looks at Postgres for lags, stopped lanes and parked rows. A scrape gets the last look and waits for nothing."""

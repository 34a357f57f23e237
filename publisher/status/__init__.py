"""Reads and serves the state of lanes and process: `publisher status`, gauges out of Postgres, and the HTTP endpoint."""

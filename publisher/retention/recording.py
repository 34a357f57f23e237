"""What retention removes is in the operator log, step by step."""

from typing import Any

import psycopg

from db import operations


def record(connection: psycopg.Connection[Any], **removed: Any) -> None:
    """Record what the caller's transaction removes."""
    operations.record(connection, "publisher retention run", {}, removed)

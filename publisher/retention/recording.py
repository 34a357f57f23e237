"""Records in the operator log what retention removes, step by step."""

from typing import Any

import psycopg

from db import operations


def record(connection: psycopg.Connection[Any], **removed: Any) -> None:
    """Record the removals of the caller's transaction."""
    operations.record(connection, "publisher retention run", {}, removed)

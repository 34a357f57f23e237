"""Omits from an answer the data that the login may not read, instead of failing."""

from collections.abc import Callable
from typing import Any, TypeVar

import psycopg

T = TypeVar("T")


def permitted(connection: psycopg.Connection[Any], ask: Callable[[], T], otherwise: T) -> T:
    """Return the result of `ask`, or `otherwise` if the login may not read the data. Raises psycopg.Error."""
    try:
        # Within a snapshot this opens a savepoint: a refusal rolls back to it, and the snapshot's transaction continues.
        with connection.transaction():
            return ask()
    except psycopg.errors.InsufficientPrivilege:
        return otherwise

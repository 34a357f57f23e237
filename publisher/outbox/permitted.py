"""What a login may not read is left out of an answer, instead of ending it."""

from collections.abc import Callable
from typing import Any, TypeVar

import psycopg

T = TypeVar("T")


def permitted(connection: psycopg.Connection[Any], ask: Callable[[], T], otherwise: T) -> T:
    """Return what `ask` returns, `otherwise` where the login may not read it. Raises psycopg.Error."""
    try:
        # Within a snapshot this is a savepoint, which the refusal does not outlive.
        with connection.transaction():
            return ask()
    except psycopg.errors.InsufficientPrivilege:
        return otherwise

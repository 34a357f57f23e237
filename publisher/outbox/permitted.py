"""Leaves data that the login may not read out of an answer, instead of failing."""

from collections.abc import Callable
from typing import Any, TypeVar

import psycopg

T = TypeVar("T")


def permitted(connection: psycopg.Connection[Any], ask: Callable[[], T], otherwise: T) -> T:
    """Return the result of `ask`, or `otherwise` if the login may not read it. Raises psycopg.Error."""
    try:
        # Within a snapshot this is a savepoint, which the refusal does not outlive.
        with connection.transaction():
            return ask()
    except psycopg.errors.InsufficientPrivilege:
        return otherwise

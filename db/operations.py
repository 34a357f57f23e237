"""The operator log `outbox.operation`: who changed something by a command. Its row commits with the change, or neither does."""

from collections.abc import Mapping, Sequence
from typing import Any

import psycopg
from psycopg.pq import TransactionStatus
from psycopg.types.json import Jsonb

from db.statements import queries
from service.lifecycle.process import host_name, user_name
from service.printable import printable

_OPERATIONS = queries("db", "operations")

_MOST_ITEMS = 100
_MOST_CHARACTERS = 1_000


def record(
    connection: psycopg.Connection[Any],
    command: str,
    arguments: Mapping[str, Any],
    result: Mapping[str, Any] | None = None,
) -> None:
    """Write a row of the log. Call it in the transaction of the change; one row for each transaction that changes something.

    `command`: as it is typed, without options ("publisher lanes set"). `arguments`: its options, JSON-ready; None and False are
    left out. Never secrets, and session keys only as their number: a key that is erased must not live on here. `result`: what this
    transaction changed. Long lists and texts are cut. Raises RuntimeError outside a transaction, psycopg.Error.
    """
    if connection.info.transaction_status is not TransactionStatus.INTRANS:
        raise RuntimeError(f"{command}: an operation is recorded in the transaction of its change")
    connection.execute(
        _OPERATIONS["record"],
        {
            "os_user": user_name(),
            "host": host_name(),
            "command": command,
            "arguments": Jsonb(
                {name: _cut(value) for name, value in arguments.items() if value not in (None, False)}
            ),
            "result": Jsonb(_cut(result or {})),
        },
    )


def _cut(value: Any) -> Any:
    """Return the value without characters that jsonb refuses, and cut to a maximum length."""
    match value:
        case str():
            text = printable(value)
            return text if len(text) <= _MOST_CHARACTERS else f"{text[:_MOST_CHARACTERS]}…"
        case Mapping():
            return {str(name): _cut(each) for name, each in value.items()}
        case Sequence():
            shown = [_cut(each) for each in value[:_MOST_ITEMS]]
            return shown if len(value) <= _MOST_ITEMS else [*shown, f"… {len(value) - _MOST_ITEMS} more"]
        case None | bool() | int() | float():
            return value
        case _:
            return printable(str(value))

"""The operator log `outbox.operation`: who changed something with which command. A change and its row in the log commit together."""

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
    """Write a row of the log. Call it once in each transaction that changes something.

    `command`: as it is typed, without options ("publisher lanes set"). `arguments`: the options, JSON-ready; None and False are left out.
    Never pass secrets, and pass only the number of session keys: an erased key must not survive here. `result`: what this transaction
    changed. Long lists and texts are cut. Raises RuntimeError outside a transaction, psycopg.Error.
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
                {
                    name: _cut(value)
                    for name, value in arguments.items()
                    if value is not None and value is not False
                }
            ),
            "result": Jsonb(_cut(result or {})),
        },
    )


def _cut(value: Any) -> Any:
    """Return the value without characters that jsonb refuses. Long texts and lists are cut."""
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

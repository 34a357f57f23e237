"""A lane's lease in Postgres names the process that works on the lane, so that other processes wait. It serves liveness only; Kafka fences.

A lease lasts `[publisher] lease_s`; a lease of `publisher resume` may last longer (resume/lane_move.py). The heartbeat renews the leases of
the process' lanes, except those that hang (assignment/heartbeat.py). A lane renews its own lease while it is idle and with each delivery
(lane/lane.py). A lease also ends when its holder's backend is gone (sql/leases.sql).
All reasons why a lane moves: assignment/__init__.py.
"""

from typing import Any

import psycopg

from db.statements import queries
from service.errors import FencedError

_LEASES = queries("publisher", "leases")


class LeaseLostError(FencedError):
    """Another publisher holds this lane now."""


class Lease:
    """A held lease. `token` is greater than the token of every earlier holder."""

    def __init__(self, epoch: int, lane: int, token: int, seconds: float) -> None:
        self.token = token
        self._parameters = {"epoch": epoch, "lane": lane, "lease_token": token, "lease_s": seconds}

    @property
    def parameters(self) -> dict[str, Any]:
        """epoch, lane, lease_token and lease_s, for statements that take effect only under the lease."""
        return self._parameters

    @classmethod
    def claim(
        cls, connection: psycopg.Connection[Any], epoch: int, lane: int, holder: str, seconds: float
    ) -> "Lease | None":
        """Claim the lane if this holder or nobody has it, its lease has expired, or its holder's backend is gone; else return None."""
        parameters = {"epoch": epoch, "lane": lane, "holder": holder, "lease_s": seconds}
        row = connection.execute(_LEASES["claim"], parameters).fetchone()
        return None if row is None else cls(epoch, lane, row[0], seconds)

    def renew(self, connection: psycopg.Connection[Any]) -> None:
        """Extend the lease by `lease_s`. Raises LeaseLostError."""
        if connection.execute(_LEASES["renew"], self._parameters).rowcount != 1:
            raise LeaseLostError(f"lane {self._parameters['lane']} was taken over by another publisher")

    def release(self, connection: psycopg.Connection[Any]) -> None:
        """Give the lease back if this holder still has it."""
        connection.execute(_LEASES["release"], self._parameters)

"""Finds rows that no lane of their epoch would ever deliver. The first lane checks each batch before its cursor passes it."""

from typing import Any

import psycopg

from contract.cursor import Cursor
from db.statements import queries
from publisher.protocol.epochs import Epoch
from publisher.protocol.history_check import DeliveryPosition
from publisher.protocol.stop_reasons import StoppedError, StopReason

_ROWS = queries("publisher", "rows")


class StrayRows:
    """Checks each batch once. Only the first lane checks; for any other lane `check` does nothing."""

    def __init__(self, epoch: Epoch, lane: int, position: DeliveryPosition) -> None:
        """`position`: where the lane begins. Earlier batches were checked when the lane passed them."""
        at = position.cursor
        self._epoch = epoch
        self._is_first_lane = lane == 0
        self._checked = at.batch_id if at.session_key is None else at.batch_id - 1

    def check(self, connection: psycopg.Connection[Any], end: Cursor) -> None:
        """Check the batches up to `end`, which the ledger has. Raises StoppedError, psycopg.Error."""
        if not self._is_first_lane or end.batch_id <= self._checked:
            return
        row = connection.execute(
            _ROWS["stray"],
            {"lanes": self._epoch.lanes, "after_batch": self._checked, "to_batch": end.batch_id},
            prepare=False,
        ).fetchone()
        if row is not None:
            batch_id, lane = row
            raise StoppedError(
                StopReason.NO_SUCH_LANE,
                f"a row of batch {batch_id} is for lane {lane}, but epoch {self._epoch.epoch} "  # noqa: S608 - for a person to run
                f"has only the lanes 0 to {self._epoch.lanes - 1}: no lane would deliver it. It was written or changed by "
                "hand, or the lane count was, without `publisher lanes set`. Let the owner of the schema give it a lane: "
                f"UPDATE outbox.session_output SET lane = <lane> WHERE batch_id = {batch_id} AND lane = {lane}; for each session_key "
                "the lane of its other rows of the epoch, if there are any. The lane looks "
                "again by itself, or restart `publisher run`",
            )
        self._checked = end.batch_id

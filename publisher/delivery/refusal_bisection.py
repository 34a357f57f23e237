"""Finds the row that Kafka refuses by bisection, if Kafka refuses a transaction without naming a row. Pure."""

ONE_BY_ONE_ROWS = 32
"""At most this many rows are sent record by record in one transaction."""
ONE_BY_ONE_EVENTS = 2_000
"""These rows have at most this many events; a row with more is sent alone."""


class RefusalBisection:
    """Finds the row that Kafka refuses when it refuses a transaction without naming one.

    If each record is sent by itself, Kafka names the row, but that is slow, and a transaction may not outlast its timeout. So the rows are
    halved first: a half without the refused row is delivered, and the row is in the next half. Only the last few rows are sent record by
    record, and fewer if even those took too long. The lane opens again after `refused`, and during the search after `delivered`, too.
    """

    def __init__(self) -> None:
        self.rows: int | None = None
        """Rows that the next transaction may carry, None: the search sets no limit."""

    @property
    def on(self) -> bool:
        """Whether the search for a refused row is on."""
        return self.rows is not None

    @property
    def one_by_one(self) -> bool:
        """Whether each record is sent, and can be refused, by itself."""
        return self.rows is not None and self.rows <= ONE_BY_ONE_ROWS

    def refused(self, rows: int) -> None:
        """Kafka refused a transaction with this number of rows."""
        if not self.one_by_one:
            self.rows = max(1, rows // 2) if rows > ONE_BY_ONE_ROWS else ONE_BY_ONE_ROWS

    def failed(self) -> None:
        """A transaction failed for another reason, and its size may explain it: the same rows would fail once more."""
        if self.rows is not None:
            self.rows = max(1, self.rows // 2)

    def delivered(self) -> None:
        """A transaction was committed: the refused row is in the next half, or no row is refused any longer."""
        if self.one_by_one:
            self.rows = None
        elif self.rows is not None:
            self.rows = max(1, self.rows // 2)

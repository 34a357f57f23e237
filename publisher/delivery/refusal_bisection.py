"""Finds the refused row by bisection, if Kafka refuses a transaction without naming a row. Pure."""

ONE_BY_ONE_ROWS = 32
"""The most rows that are sent record by record in one transaction."""
ONE_BY_ONE_EVENTS = 2_000
"""The most events of these rows together; a row with more events is sent alone."""


class RefusalBisection:
    """Finds the row that Kafka refuses, if Kafka refuses a transaction without naming a row.

    If each record is sent by itself, Kafka names the row, but that is slow, and a transaction may not outlast its timeout. So the rows are
    halved first: a half without the refused row is delivered, and the refused row is in the next half. Only the last few rows are sent
    record by record, or fewer if even those took too long. The lane opens again after each `refused`, and also after `delivered` during the
    search.
    """

    def __init__(self) -> None:
        self.rows: int | None = None
        """The most rows that the next transaction may carry, None if the search sets no limit."""

    @property
    def on(self) -> bool:
        """Whether the search for a refused row is under way."""
        return self.rows is not None

    @property
    def one_by_one(self) -> bool:
        """Whether each record is sent by itself, so that Kafka names the refused one."""
        return self.rows is not None and self.rows <= ONE_BY_ONE_ROWS

    def refused(self, rows: int) -> None:
        """Record that Kafka refused a transaction with this number of rows."""
        if not self.one_by_one:
            self.rows = max(1, rows // 2) if rows > ONE_BY_ONE_ROWS else ONE_BY_ONE_ROWS

    def failed(self) -> None:
        """Record that a transaction failed for another reason that its size may explain: the same rows would fail once more."""
        if self.rows is not None:
            self.rows = max(1, self.rows // 2)

    def delivered(self) -> None:
        """Record a committed transaction. The refused row is then in the next half, or no row is refused any longer."""
        if self.one_by_one:
            self.rows = None
        elif self.rows is not None:
            self.rows = max(1, self.rows // 2)

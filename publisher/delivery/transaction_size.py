"""How much the next transaction carries. Pure."""


class TransactionSize:
    """As much as the settings allow, until a transaction fails: then half of what that one carried, and so on.

    A transaction that outlives its timeout is lost whole, so over a slow link or under a quota only smaller ones get through. The size
    grows by a quarter with each transaction that took less than a quarter of the timeout: it settles where they are well within it.
    """

    def __init__(self, rows: int, bytes_: int, timeout_s: float) -> None:
        """`rows`, `bytes_`: the most that a transaction carries."""
        self._most_rows = self.rows = rows
        self._most_bytes = self.bytes = bytes_
        self._timeout_s = timeout_s

    @property
    def reduced(self) -> bool:
        """Whether it is less than the settings allow."""
        return self.rows < self._most_rows or self.bytes < self._most_bytes

    def failed(self, rows: int, bytes_: int) -> None:
        """A transaction of so many rows and bytes failed, and none of its rows was to blame."""
        if rows > 0:
            self.rows = max(1, min(self.rows, rows) // 2)
            self.bytes = max(1, min(self.bytes, bytes_) // 2)

    def committed(self, took_s: float) -> None:
        """A transaction went through."""
        if took_s < self._timeout_s / 4:
            self.rows = min(self._most_rows, self.rows + max(1, self.rows // 4))
            self.bytes = min(self._most_bytes, self.bytes + max(1_024, self.bytes // 4))

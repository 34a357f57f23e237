"""What a person sees of the demo: live progress while it runs, tables at the end."""

import time
from types import TracebackType
from typing import Any, Self

from rich.console import Console
from rich.live import Live
from rich.markup import escape
from rich.progress_bar import ProgressBar
from rich.table import Table

from examples.demo.outbox import Progress

_PLAIN_EVERY_S = 5.0


class Display:
    """Progress that redraws itself in a terminal, and is a line every five seconds elsewhere."""

    def __init__(self, console: Console) -> None:
        """Nothing is drawn before `with`."""
        self._console = console
        self._live = Live(console=console, auto_refresh=False) if console.is_terminal else None
        self._began = time.monotonic()
        self._last_line = 0.0

    def say(self, text: str) -> None:
        """One line that stays, with the seconds since the start before it."""
        self._console.print(
            f"[dim]{self._seconds():>4.0f} s[/]  {escape(text)}", highlight=False, soft_wrap=True
        )

    def show(self, written: int, total: int, progress: Progress, kills: str) -> None:
        """Draw where everything is."""
        if self._live is not None:
            self._live.update(_table(self._seconds(), written, total, progress, kills), refresh=True)
        elif self._seconds() - self._last_line >= _PLAIN_EVERY_S:
            self._last_line = self._seconds()
            self.say(
                f"input {written:,}/{total:,} · sessions {progress.sessions:,} · outbox {progress.output_events:,} · "
                f"delivered {progress.delivered:,} · dead letters {progress.dead_letters} · kills {kills}"
            )

    def __enter__(self) -> Self:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.stop()

    def _seconds(self) -> float:
        return time.monotonic() - self._began


def letters(rows: list[tuple[Any, ...]]) -> Table:
    """The dead letters by reason."""
    table = Table("dead letters", "reason", "events", "for example", box=None, header_style="bold")
    for reason, count, events, detail in rows:
        table.add_row(str(count), reason, str(events), escape(str(detail).splitlines()[-1]))
    return table


def _table(seconds: float, written: int, total: int, progress: Progress, kills: str) -> Table:
    table = Table(box=None, show_header=False, title=f"{seconds:.0f} s", title_justify="left")
    for label, done, of in (
        ("events written to Kafka", written, total),
        ("events through Spark", progress.input_events, total),
        ("output events delivered", progress.delivered, progress.output_events),
    ):
        table.add_row(label, f"{done:>9,} / {of:<9,}", ProgressBar(max(1, of), done, width=30))
    table.add_row("sessions in the outbox", f"{progress.sessions:>9,}", f"{progress.open_sessions:,} open")
    table.add_row("dead letters", f"{progress.dead_letters:>9,}")
    table.add_row("kill -9", kills)
    return table

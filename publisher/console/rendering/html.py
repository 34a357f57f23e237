"""The templates, and how they write numbers, times and sizes. All text is escaped."""

from datetime import UTC, datetime
from functools import cache
from typing import Any
from urllib.parse import urlencode

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from publisher.console.reader import PageData
from publisher.outbox.sent_offsets import read_sent_offsets, shown_sent_offsets, shown_topic_offsets
from service.settings import ConsoleSettings

FRAGMENT, WHOLE = "fragment.html", "base.html"
_UNITS = ("B", "kB", "MB", "GB", "TB")


class Rendering:
    """Renders the pages of one console."""

    def __init__(self, settings: ConsoleSettings) -> None:
        self._base = settings.path_prefix
        self._show = settings.show_values
        self._has_login = settings.token is not None

    def page(
        self, template: str, found: PageData, *, path: str, live: bool = False, part: bool = False
    ) -> str:
        """Return a page. `part`: only its middle, for a page that is already open."""
        values = {
            "layout": FRAGMENT if part else WHOLE,
            "base": self._base,
            "path": path,
            "live": live,
            "show_values": self._show,
            "has_login": self._has_login,
            "at": datetime.now(UTC),
        }
        return environment().get_template(template).render(values | found)


@cache
def environment() -> Environment:
    """Return the environment with the package's templates."""
    made = Environment(
        loader=PackageLoader("publisher.console"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    made.filters |= {
        "count": count,
        "rate": rate,
        "seconds": seconds,
        "size": size,
        "moment": moment,
        "ms": of_ms,
        "query": query,
        "topic_offsets": shown_topic_offsets,
        "sent_offsets": lambda text: shown_sent_offsets(read_sent_offsets(text)),
    }
    made.globals["bars"] = bars
    return made


def count(value: int | None) -> str:
    """Format a number: 1234567 -> 1,234,567."""
    return "" if value is None else f"{value:,}"


def rate(value: float) -> str:
    """Format a rate per second, with one decimal if it is small."""
    return f"{value:,.0f}" if value >= 100 or value == 0 else f"{value:,.1f}"


def seconds(value: float | None) -> str:
    """Format a duration."""
    if value is None:
        return ""
    value = float(value)
    if value < 1:
        return f"{value * 1000:,.0f} ms"
    if value < 120:
        return f"{value:,.1f} s"
    if value < 7_200:
        return f"{value / 60:,.0f} min"
    return f"{value / 3_600:,.1f} h" if value < 172_800 else f"{value / 86_400:,.1f} days"


def size(value: float | None) -> str:
    """Format a number of bytes."""
    if value is None:
        return ""
    unit = 0
    value = float(value)
    while value >= 1000 and unit < len(_UNITS) - 1:
        value, unit = value / 1000, unit + 1
    return f"{value:,.0f} {_UNITS[unit]}" if unit == 0 else f"{value:,.1f} {_UNITS[unit]}"


def moment(value: datetime | None) -> Markup | str:
    """Format a time in UTC."""
    if value is None:
        return ""
    utc = value.astimezone(UTC)
    return Markup('<time datetime="{}">{}</time>').format(
        utc.isoformat(timespec="milliseconds"), f"{utc:%Y-%m-%d %H:%M:%S}"
    )


def of_ms(value: int) -> Markup | str:
    """Format milliseconds since 1970 as a time, or return the number if it is out of range."""
    try:
        return moment(datetime.fromtimestamp(value / 1000, UTC))
    except (OverflowError, ValueError, OSError):
        return str(value)


def query(values: dict[str, Any]) -> str:
    """Format the parameters of an address."""
    return urlencode(values)


def bars(values: list[float], label: str) -> Markup:
    """Draw a row of bars as SVG, without any style or script."""
    most = max(values, default=0) or 1
    drawn = [
        Markup('<rect x="{}" y="{}" width="1.6" height="{}"/>').format(
            2 * n, round(24 - 24 * value / most, 2), round(24 * value / most, 2)
        )
        for n, value in enumerate(values)
        if value > 0
    ]
    text = f"{label}, last two minutes, at most {rate(max(values, default=0))} per second"
    return Markup(
        '<svg class="bars" viewBox="0 0 {} 24" preserveAspectRatio="none" role="img" aria-label="{}">{}</svg>'
    ).format(2 * len(values), text, Markup("").join(drawn))

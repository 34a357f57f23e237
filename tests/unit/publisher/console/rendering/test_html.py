"""Numbers and times are readable, and no text becomes markup."""

from datetime import datetime, timedelta, timezone
from typing import Any

import pytest

from publisher.console.flow import rate as mean_rate
from publisher.console.flow import series
from publisher.console.rendering.html import Rendering, bars, environment, moment, of_ms, rate, seconds, size
from publisher.console.search import SearchOutcome
from service.settings import ConsoleSettings


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, ""), (0.0042, "4 ms"), (1.25, "1.2 s"), (600, "10 min"), (10_000, "2.8 h"), (1e6, "11.6 days")],
)
def test_a_duration(value: float | None, text: str) -> None:
    assert seconds(value) == text


def test_sizes_rates_and_moments() -> None:
    assert [size(each) for each in (None, 999, 1_500, 3.2e12)] == ["", "999 B", "1.5 kB", "3.2 TB"]
    assert [rate(each) for each in (0, 2.25, 12_345.6)] == ["0", "2.2", "12,346"]
    at = datetime(2026, 1, 2, 3, 4, 5, tzinfo=timezone(timedelta(hours=2)))
    assert moment(at) == '<time datetime="2026-01-02T01:04:05.000+00:00">2026-01-02 01:04:05</time>'
    assert of_ms(2**62) == str(2**62)


def test_the_rate_is_of_the_newest_steps_only() -> None:
    rows: list[dict[str, Any]] = [{"step": 0, "n": 10}, {"step": 4, "n": 10}, {"step": 5, "n": 1_000}]
    assert mean_rate(rows, "n", 5) == 2.0
    drawn = series(rows, "n")
    assert (len(drawn), drawn[-1], drawn[-6]) == (60, 5.0, 500.0)
    assert 'aria-label="x, last two minutes, at most 500 per second"' in bars(drawn, "x")


def test_what_a_session_is_called_never_becomes_markup() -> None:
    outcome = SearchOutcome("<script>alert(1)</script>", notes=["<b>"])
    page = Rendering(ConsoleSettings(path_prefix="/ops")).page(
        "search.html", {"outcome": outcome}, path="/search"
    )
    assert "<script>alert" not in page
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in page
    assert 'href="/ops/lanes"' in page
    assert 'href="/lanes"' not in page


def test_no_template_has_a_script_or_a_style_of_its_own() -> None:
    """The policy would refuse them."""
    loader = environment().loader
    assert loader is not None
    names = loader.list_templates()
    assert len(names) >= 15
    for name in names:
        source = loader.get_source(environment(), name)[0]
        assert "style=" not in source, name
        assert "onclick" not in source, name
        assert "http://" not in source, name
        assert "https://" not in source, name
        assert source.count("<script") == (1 if name == "base.html" else 0), name
        assert "|safe" not in source, name

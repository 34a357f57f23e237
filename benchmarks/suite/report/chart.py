"""Horizontal bars with their spread, as SVG for light and dark pages. Pure: the same bytes for the same figures."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from benchmarks.suite.report.tables import number

_STYLE = """
text { font: 12px -apple-system, "Segoe UI", Helvetica, Arial, sans-serif; fill: #1f2328; }
.title { font-size: 14px; font-weight: 600; }
.minor { fill: #59636e; }
.grid { stroke: #d1d9e0; }
.spread { stroke: #1f2328; stroke-width: 1.5; }
.c0 { fill: #0969da; } .c1 { fill: #bc4c00; } .c2 { fill: #8250df; } .c3 { fill: #1a7f37; } .c4 { fill: #bf3989; } .c5 { fill: #9a6700; }
@media (prefers-color-scheme: dark) {
text { fill: #f0f6fc; }
.minor { fill: #9198a1; }
.grid { stroke: #3d444d; }
.spread { stroke: #f0f6fc; }
.c0 { fill: #4493f8; } .c1 { fill: #f0883e; } .c2 { fill: #ab7df8; } .c3 { fill: #3fb950; } .c4 { fill: #db61a2; } .c5 { fill: #d29922; }
}
"""
_COLOURS = 6
_WIDTH, _RIGHT, _TOP = 860, 130, 44
_BAR, _GAP, _GROUP_GAP, _AXIS = 16, 4, 12, 34
_LETTER = 6.6


@dataclass(frozen=True)
class Bar:
    """One bar. Infinite: drawn to the edge and named so."""

    label: str
    """Of whose it is: equal labels have equal colours."""
    median: float
    least: float
    greatest: float


@dataclass(frozen=True)
class Group:
    """Bars that are to be compared, under one name."""

    name: str
    bars: Sequence[Bar]


def svg(title: str, unit: str, groups: Sequence[Group], *, logarithmic: bool = False) -> str:
    """Return the picture. Raises ValueError without a bar that has a length."""
    series = list(dict.fromkeys(bar.label for group in groups for bar in group.bars))
    axis = _Axis.of([bar for group in groups for bar in group.bars], logarithmic=logarithmic)
    heads = [
        f"{group.name}, {bar.label}" if group.name and len(series) > 1 else group.name or bar.label
        for group in groups
        for bar in group.bars
    ]
    left = min(330.0, 24 + _LETTER * max(map(len, heads)))
    room = _WIDTH - left - _RIGHT
    parts: list[str] = []
    y = float(_TOP)
    names = iter(heads)
    for group in groups:
        for bar in group.bars:
            parts.append(_bar(bar, next(names), series.index(bar.label), left, room, y, axis))
            y += _BAR + _GAP
        y += _GROUP_GAP - _GAP if len(groups) > 1 else 0
    bottom = y + 2
    grid = []
    for tick in axis.ticks():
        x = left + room * axis.share(tick)
        grid.append(f'<line class="grid" x1="{x:.1f}" x2="{x:.1f}" y1="{_TOP - 6}" y2="{bottom:.1f}"/>')
        grid.append(
            f'<text class="minor" x="{x:.1f}" y="{bottom + 16:.1f}" text-anchor="middle">{number(tick)}</text>'
        )
    height = bottom + _AXIS
    about = f"{unit}; the line: least to greatest" + ("; logarithmic" if logarithmic else "")
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height:.0f}" width="{_WIDTH}" role="img">',
            f"<title>{escape(title)}</title>",
            f"<style>{_STYLE}</style>",
            f'<text class="title" x="12" y="20">{escape(title)}</text>',
            *grid,
            *parts,
            f'<text class="minor" x="{_WIDTH - 12}" y="20" text-anchor="end">{escape(about)}</text>',
            "</svg>",
            "",
        ]
    )


def _bar(bar: Bar, head: str, colour: int, left: float, room: float, y: float, axis: "_Axis") -> str:
    end = left + room * axis.share(bar.median)
    middle = y + _BAR / 2
    parts = [
        f'<text x="{left - 8:.1f}" y="{middle + 4:.1f}" text-anchor="end">{escape(head)}</text>',
        f'<rect class="c{colour % _COLOURS}" x="{left:.1f}" y="{y:.1f}" width="{max(1.0, end - left):.1f}" height="{_BAR}" rx="2"/>',
    ]
    if bar.least < bar.greatest:
        low, high = (left + room * axis.share(value) for value in (bar.least, bar.greatest))
        parts.append(
            f'<line class="spread" x1="{low:.1f}" x2="{high:.1f}" y1="{middle:.1f}" y2="{middle:.1f}"/>'
        )
        end = max(end, high)
    parts.append(f'<text x="{end + 6:.1f}" y="{middle + 4:.1f}">{number(bar.median)}</text>')
    return "\n".join(parts)


@dataclass(frozen=True)
class _Axis:
    """From which value to which; 0 to the greatest where it is linear."""

    low: float
    high: float
    logarithmic: bool

    @classmethod
    def of(cls, bars: Sequence[Bar], *, logarithmic: bool) -> "_Axis":
        found = [
            value for bar in bars for value in (bar.median, bar.least, bar.greatest) if math.isfinite(value)
        ]
        positive = [value for value in found if value > 0]
        if not positive:
            raise ValueError("no bar has a length")
        if logarithmic:
            low = 10 ** math.floor(math.log10(min(positive)))
            return cls(low, max(10 ** math.ceil(math.log10(max(positive))), 10 * low), True)
        return cls(0.0, max(positive), False)

    def share(self, value: float) -> float:
        """0 to 1."""
        if math.isinf(value):
            return 1.0
        if self.logarithmic:
            return math.log(max(value, self.low) / self.low) / math.log(self.high / self.low)
        return max(0.0, value / self.high)

    def ticks(self) -> list[float]:
        """Round values; decades where it is logarithmic."""
        if self.logarithmic:
            decades = round(math.log10(self.high / self.low))
            return [self.low * 10**power for power in range(decades + 1)]
        rough = self.high / 4
        unit = 10 ** math.floor(math.log10(rough))
        step = next(unit * factor for factor in (1, 2, 5, 10) if unit * factor >= rough)
        return [step * number for number in range(int(self.high / step) + 1)]

"""What a shop's analyst wants to know about one visit: twenty facts, the same twenty for every session.

Always the same set, also where nothing happened, so that every average in the warehouse has its denominator: a funnel
needs the visits that did *not* reach the cart as much as those that did.

| topic | facts |
| --- | --- |
| `shop.sessions` | `session`, `outcome`, `path` |
| `shop.funnel` | `stage` × 6 |
| `shop.pages` | `dwell` × 7, `transitions` |
| `shop.carts` | `cart`, `interest`, `friction` |

Every value is a JSON object that starts with `fact` and `session`; durations are seconds of event time.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

from spark_job.api import OutputEvent, Session

SESSIONS = "shop.sessions"
FUNNEL = "shop.funnel"
PAGES = "shop.pages"
CARTS = "shop.carts"
TOPICS = (SESSIONS, FUNNEL, PAGES, CARTS)
OUTPUTS_PER_SESSION = 20

STAGES = {
    "landing": frozenset({"home", "promo_page"}),
    "product": frozenset({"product_view"}),
    "cart": frozenset({"add_to_cart", "cart"}),
    "shipping": frozenset({"shipping_details"}),
    "payment": frozenset({"payment_details"}),
    "purchase": frozenset({"purchase"}),
}
"""The funnel from the outside in: stage -> pages that reach it."""

GROUPS = {
    "landing": frozenset({"home", "promo_page"}),
    "browse": frozenset({"catalog", "filter_results"}),
    "search": frozenset({"search"}),
    "product": frozenset({"product_view", "review_page", "compare", "wishlist_add"}),
    "checkout": frozenset({"add_to_cart", "cart", "shipping_details", "payment_details", "purchase"}),
    "help": frozenset({"account_page", "support_chat"}),
    "trouble": frozenset({"error_page", "payment_error", "checkout_bug"}),
}
"""Kinds of page by what the visitor is about: group -> pages."""

_STAGE_OF = {page: stage for stage, pages in STAGES.items() for page in pages}
_GROUP_OF = {page: group for group, pages in GROUPS.items() for page in pages}
_PATH_STEPS = 12
_TOP_TRANSITIONS = 5

Fact = dict[str, Any]


class Visit:
    """The session's clicks as parallel lists: `pages`, when each came and how long it lasted, in seconds."""

    def __init__(self, session: Session) -> None:
        """Raises KeyError when a click has no `page`, TypeError when the page is not text."""
        self.key = session.key
        self.about: Fact = session.events[0].value
        clicks = session.events[1:-1]
        self.values: list[Fact] = [click.value for click in clicks]
        self.pages: list[str] = [_text(value["page"]) for value in self.values]
        self.started_at = session.started_at
        self.duration = (session.ended_at - session.started_at).total_seconds()
        self.at: list[float] = [(click.timestamp - session.started_at).total_seconds() for click in clicks]
        ends = [*self.at[1:], self.duration]
        # A clock that jumps back would make a dwell time negative; nobody spent less than no time on a page.
        self.dwell = [max(0.0, end - start) for start, end in zip(self.at, ends, strict=False)]
        self.views: Counter[str] = Counter(self.pages)


def transform(session: Session) -> Iterable[OutputEvent]:
    """Return the twenty facts of a session, in a fixed order."""
    visit = Visit(session)
    return [OutputEvent(topic, fact) for topic, fact in _facts(visit)]


def _facts(visit: Visit) -> Iterator[tuple[str, Fact]]:
    yield SESSIONS, _session(visit)
    yield SESSIONS, _outcome(visit)
    yield SESSIONS, _path(visit)
    yield from ((FUNNEL, stage) for stage in _stages(visit))
    yield from ((PAGES, dwell) for dwell in _dwells(visit))
    yield PAGES, _transitions(visit)
    yield CARTS, _cart(visit)
    yield CARTS, _interest(visit)
    yield CARTS, _friction(visit)


def _session(visit: Visit) -> Fact:
    about = visit.about
    return {
        "fact": "session",
        "session": visit.key,
        "user": about.get("user"),
        "platform": about.get("platform"),
        "channel": about.get("channel"),
        "lifecycle": about.get("lifecycle"),
        "started_at": visit.started_at.isoformat(),
        "duration_s": round(visit.duration, 3),
        "clicks": len(visit.pages),
        "distinct_pages": len(visit.views),
    }


def _outcome(visit: Visit) -> Fact:
    bought_at = _first(visit, STAGES["purchase"])
    if bought_at is not None:
        outcome = "purchase"
    elif visit.views["shipping_details"] or visit.views["payment_details"]:
        outcome = "abandoned_checkout"
    elif visit.views["add_to_cart"]:
        outcome = "abandoned_cart"
    elif len(visit.pages) <= 1:
        outcome = "bounce"
    else:
        outcome = "browse"
    return {
        "fact": "outcome",
        "session": visit.key,
        "outcome": outcome,
        "seconds_to_purchase": bought_at,
        "longest_pause_s": round(max(visit.dwell, default=0.0), 3),
        "exit_page": visit.pages[-1] if visit.pages else None,
    }


def _path(visit: Visit) -> Fact:
    """The pages in order, reloads of the same page taken together, cut after twelve steps."""
    steps = [page for n, page in enumerate(visit.pages) if n == 0 or page != visit.pages[n - 1]]
    return {"fact": "path", "session": visit.key, "path": steps[:_PATH_STEPS], "steps": len(steps)}


def _stages(visit: Visit) -> Iterator[Fact]:
    """One fact a stage. `seconds_from_previous` counts from the stage reached last before it, in funnel order."""
    first: dict[str, float] = {}
    visits: Counter[str] = Counter()
    for page, at in zip(visit.pages, visit.at, strict=True):
        stage = _STAGE_OF.get(page)
        if stage is not None:
            visits[stage] += 1
            first.setdefault(stage, round(at, 3))
    previous = 0.0
    for stage in STAGES:
        at_first = first.get(stage)
        yield {
            "fact": "stage",
            "session": visit.key,
            "stage": stage,
            "reached": at_first is not None,
            "visits": visits[stage],
            "seconds_from_start": at_first,
            "seconds_from_previous": None if at_first is None else round(at_first - previous, 3),
        }
        previous = previous if at_first is None else at_first


def _dwells(visit: Visit) -> Iterator[Fact]:
    seconds: dict[str, float] = dict.fromkeys(GROUPS, 0.0)
    views: Counter[str] = Counter()
    for page, dwell in zip(visit.pages, visit.dwell, strict=True):
        group = _GROUP_OF.get(page)
        if group is not None:
            seconds[group] += dwell
            views[group] += 1
    for group in GROUPS:
        share = seconds[group] / visit.duration if visit.duration else 0.0
        yield {
            "fact": "dwell",
            "session": visit.key,
            "group": group,
            "views": views[group],
            "seconds": round(seconds[group], 3),
            "share": round(share, 4),
        }


def _transitions(visit: Visit) -> Fact:
    """The commonest steps from page to page; equal counts in the order of their first appearance."""
    counts = Counter(zip(visit.pages, visit.pages[1:], strict=False))
    top = [[start, end, count] for (start, end), count in counts.most_common(_TOP_TRANSITIONS)]
    return {"fact": "transitions", "session": visit.key, "distinct": len(counts), "top": top}


def _cart(visit: Visit) -> Fact:
    """`value_cents` sums the prices of what was put in; null where the events carry no prices."""
    prices = [
        value["price_cents"]
        for page, value in zip(visit.pages, visit.values, strict=True)
        if page == "add_to_cart" and value.get("price_cents") is not None
    ]
    return {
        "fact": "cart",
        "session": visit.key,
        "adds": visit.views["add_to_cart"],
        "views": visit.views["cart"],
        "value_cents": sum(prices) if prices else None,
        "purchased": visit.views["purchase"] > 0,
        "abandoned": visit.views["add_to_cart"] > 0 and not visit.views["purchase"],
    }


def _interest(visit: Visit) -> Fact:
    return {
        "fact": "interest",
        "session": visit.key,
        "product_views": visit.views["product_view"],
        "reviews_read": visit.views["review_page"],
        "comparisons": visit.views["compare"],
        "wishes": visit.views["wishlist_add"],
        "searches": visit.views["search"],
    }


def _friction(visit: Visit) -> Fact:
    """`checkout_loops`: how often the visitor was thrown back from shipping or payment to the cart."""
    back = ("shipping_details", "payment_details")
    loops = sum(
        before in back and after in ("add_to_cart", "cart")
        for before, after in zip(visit.pages, visit.pages[1:], strict=False)
    )
    return {
        "fact": "friction",
        "session": visit.key,
        "errors": visit.views["error_page"] + visit.views["checkout_bug"],
        "payment_errors": visit.views["payment_error"],
        "support_chats": visit.views["support_chat"],
        "checkout_loops": loops,
    }


def _first(visit: Visit, pages: frozenset[str]) -> float | None:
    for page, at in zip(visit.pages, visit.at, strict=True):
        if page in pages:
            return round(at, 3)
    return None


def _text(page: object) -> str:
    if not isinstance(page, str):
        raise TypeError(f"page is {page!r}, not text")
    return page

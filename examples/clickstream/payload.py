"""Building the generator's payloads fast: each value is a session's head, a time, and one of several thousand tails.

{"event_type":"entry_event","session_key":"s-00000042","at":"   2026-01-01T00:00:01.250Z   ","event_id":"7","page":…}
'------------------------- head of the session ------------'   '------- time --------'   '-------- tail --------'
"""

from enum import IntEnum

import numpy as np

from examples.clickstream.events import END, ENTRY, START

VARIANTS = 64
"""Different tails for each number of an entry."""

START_TAIL, END_TAIL, RESTART_TAIL, CUT_TAIL, BROKEN_TAIL = range(5)
_ENTRY_TAILS = 5
_TIME_BYTES = len("2026-01-01T00:00:00.000Z")

# Pages with their weights in the sample clickstream.
_PAGES = {
    "product_view": 6851,
    "catalog": 6521,
    "search": 4011,
    "home": 2762,
    "filter_results": 2610,
    "add_to_cart": 1346,
    "cart": 1204,
    "shipping_details": 958,
    "wishlist_add": 812,
    "promo_page": 796,
    "payment_details": 709,
    "account_page": 659,
    "purchase": 470,
    "review_page": 406,
    "support_chat": 277,
    "error_page": 276,
    "compare": 275,
    "payment_error": 119,
    "checkout_bug": 44,
}
_WITH_PRODUCT = ("product_view", "add_to_cart", "wishlist_add", "review_page")
_LETTERS = np.frombuffer(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789", dtype=np.uint8)


class Heads(IntEnum):
    """Which of a session's heads a value has."""

    START = 0
    ENTRY = 1
    END = 2
    ORPHAN = 3


def heads(key: bytes) -> list[bytes]:
    """The heads of one session, by number of Heads."""
    return [
        _head(START, key),
        _head(ENTRY, key),
        _head(END, key),
        _head(ENTRY, orphan_key(key)),
    ]


def orphan_key(key: bytes) -> bytes:
    """The key of the entry that arrives beside the session without having a start."""
    return key + b"-orphan"


def entry_tail(number: int, variant: int) -> int:
    """Index of the tail of entry `number` (from 0)."""
    return _ENTRY_TAILS + number * VARIANTS + variant


def tails(entries: int, key_bytes: int, bytes_per_event: int, random: np.random.Generator) -> list[bytes]:
    """All tails, all but the cut one padded so that an entry with a key of `key_bytes` has about `bytes_per_event`, if it is shorter."""
    about = b'"user":"user_%04d","platform":"mobile","channel":"organic","lifecycle":"new"'
    entry_head = len(_head(ENTRY, b"")) + key_bytes + _TIME_BYTES
    room = bytes_per_event - entry_head
    found = [
        _padded(b'","event_id":"start",' + about % 7, room, random),
        _padded(b'","event_id":"end"', room, random),
        _padded(b'","event_id":"restart",' + about % 8, room, random),
        b'","event_id":"cut","pa',
        _padded(b'","event_id":"pageless"', room, random),
    ]
    weights = np.array(list(_PAGES.values())) / sum(_PAGES.values())
    pages = random.choice(list(_PAGES), size=(entries, VARIANTS), p=weights).tolist()
    for number in range(entries):
        found += [_padded(_click(number, page, random), room, random) for page in pages[number]]
    return found


def _head(event_type: str, key: bytes) -> bytes:
    return b'{"event_type":"%b","session_key":"%b","at":"' % (event_type.encode(), key)


def _click(number: int, page: str, random: np.random.Generator) -> bytes:
    text = b'","event_id":"%d","page":"%b"' % (number, page.encode())
    if page in _WITH_PRODUCT:
        product = int(random.integers(0, 1000))
        text += b',"product":"p-%03d","price_cents":%d' % (product, 499 + product * 100)
    return text


def _padded(text: bytes, room: int, random: np.random.Generator) -> bytes:
    missing = room - len(text) - len(b',"ref":""}')
    if missing < 1:
        return text + b"}"
    return text + b',"ref":"%b"}' % random.choice(_LETTERS, missing).tobytes()

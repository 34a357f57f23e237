"""Allocators are set once, and no C library without mallopt stops a publisher."""

import ctypes
import gc
from collections.abc import Callable, Iterator

import pytest

from service.lifecycle.allocators import give_back, suit_columns, suit_transactions


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    threshold = gc.get_threshold()
    yield
    gc.unfreeze()
    gc.set_threshold(*threshold)


def test_rows_on_their_way_are_not_searched_for_cycles() -> None:
    suit_transactions()
    before = gc.get_stats()[0]["collections"]
    rows = [[number] for number in range(20_000)]
    assert gc.get_stats()[0]["collections"] - before <= 1, f"{len(rows)} rows"


def test_cycles_are_found_all_the_same() -> None:
    suit_transactions()
    before = gc.get_stats()[0]["collections"]
    kept = [[number] for number in range(300_000)]
    assert gc.get_stats()[0]["collections"] > before, f"{len(kept)} rows"


@pytest.mark.parametrize(
    ("suit", "options"), [(suit_transactions, [(1, 0)]), (suit_columns, [(-1, 1 << 30), (-3, 32 << 20)])]
)
def test_glibc_is_told(
    suit: Callable[[], None], options: list[tuple[int, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Publishers: small freed blocks are not kept aside. Workers: large freed blocks are kept."""
    calls: list[tuple[int, int]] = []

    class Library:
        def mallopt(self, option: int, value: int) -> int:
            calls.append((option, value))
            return 1

    monkeypatch.setattr(ctypes, "CDLL", lambda _name: Library())
    suit()
    assert calls == options


def test_glibc_takes_what_it_is_told() -> None:
    """mallopt answers 0 to a value that it refuses."""
    mallopt = ctypes.CDLL(None).mallopt
    assert mallopt(-3, 32 << 20) == 1, "M_MMAP_THRESHOLD"


@pytest.mark.parametrize("error", [OSError("no such library"), None])
def test_another_c_library_is_left_as_it_is(monkeypatch: pytest.MonkeyPatch, error: OSError | None) -> None:
    def library(_name: None) -> object:
        if error is not None:
            raise error
        return object()

    monkeypatch.setattr(ctypes, "CDLL", library)
    suit_transactions()
    suit_columns()
    give_back()

"""Allocators are set once, and no C library without mallopt stops a publisher."""

import ctypes
import gc
from collections.abc import Iterator

import pytest

from publisher.allocators import suit_transactions


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


def test_glibc_keeps_no_small_blocks_aside(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[tuple[int, int]] = []

    class Library:
        def mallopt(self, option: int, value: int) -> int:
            calls.append((option, value))
            return 1

    monkeypatch.setattr(ctypes, "CDLL", lambda _name: Library())
    suit_transactions()
    assert calls == [(1, 0)]


@pytest.mark.parametrize("error", [OSError("no such library"), None])
def test_another_c_library_is_left_as_it_is(monkeypatch: pytest.MonkeyPatch, error: OSError | None) -> None:
    def library(_name: None) -> object:
        if error is not None:
            raise error
        return object()

    monkeypatch.setattr(ctypes, "CDLL", library)
    suit_transactions()

"""A process that could run out of file descriptors says so at its start, with the number."""

import resource

import pytest

from publisher.assignment.descriptors import ensure_descriptors, needed_descriptors
from service.errors import SettingsError


@pytest.mark.parametrize(
    ("soft", "hard", "now"),
    [
        (100_000, 100_000, None),
        (1_024, 1_048_576, 2_170),
        (resource.RLIM_INFINITY, resource.RLIM_INFINITY, None),
    ],
)
def test_a_limit_that_may_be_raised_is_raised_to_what_the_lanes_need(
    monkeypatch: pytest.MonkeyPatch, soft: int, hard: int, now: int | None
) -> None:
    limited: list[tuple[int, int]] = []
    monkeypatch.setattr(resource, "getrlimit", lambda _: (soft, hard))
    monkeypatch.setattr(resource, "setrlimit", lambda _, limits: limited.append(limits))
    ensure_descriptors(59, 3)
    assert limited == ([] if now is None else [(needed_descriptors(59, 3), hard)])
    assert needed_descriptors(59, 3) == 2_170


def test_a_limit_that_may_not_be_raised_is_refused_with_the_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (1_024, 1_024))
    with pytest.raises(
        SettingsError,
        match=r"64 lanes on 3 brokers need 2320 file descriptors, and this process may have 1024",
    ):
        ensure_descriptors(64, 3)

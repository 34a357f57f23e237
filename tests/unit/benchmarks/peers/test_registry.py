"""Contenders by the names of a command line: ours in its variants, another checkout, the peers."""

from pathlib import Path

import pytest

from benchmarks.peers.ours import Ours
from benchmarks.peers.registry import contenders, names


def test_ours_a_cluster_and_another_checkout_have_the_same_settings(tmp_path: Path) -> None:
    given = {"JOB__MAX_EVENTS_PER_BATCH": "7"}
    found = contenders(["ours", "ours-cluster-2"], baseline=tmp_path, settings=given)
    assert [one.name for one in found] == ["ours", "ours, 2 Spark workers", "before"]
    for one in found:
        assert isinstance(one, Ours)
        assert one.settings == given
    assert isinstance(found[2], Ours)
    assert found[2].checkout.folder == tmp_path.resolve()


def test_ours_is_also_measured_with_each_goal_of_latency() -> None:
    found = contenders(["ours", "ours-balanced", "ours-cheapest"])
    assert [one.name for one in found] == ["ours", "ours, balanced", "ours, cheapest"]
    assert [one.latency for one in found if isinstance(one, Ours)] == ["lowest", "balanced", "cheapest"]


def test_all_have_the_same_transaction_timeout_where_one_is_given() -> None:
    own, peer = contenders(["ours", "flink-heap-1s"], transaction_timeout_s=20)
    assert isinstance(own, Ours)
    assert own.settings["PUBLISHER__TRANSACTION_TIMEOUT_MS"] == "20000"
    assert getattr(peer, "transaction_timeout_s", None) == 20


def test_every_name_is_a_contender_of_its_own() -> None:
    assert len({one.name for one in contenders(names())}) == len(names())


def test_an_unknown_name_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ValueError, match="flink-heap-1s"):
        contenders(["flnk"])

"""Contenders by the names of a command line: ours in its variants, another checkout, the peers."""

from pathlib import Path

import pytest

from benchmarks.peers.ours import Ours
from benchmarks.suite.contenders import contenders
from benchmarks.suite.load.ours import Clustered
from benchmarks.support.servers import Servers
from devstack.stack import Stack


@pytest.fixture
def servers(tmp_path: Path) -> Servers:
    """Not started."""
    return Servers(Stack.local(tmp_path), tmp_path)


def test_ours_a_cluster_and_another_checkout_have_the_same_settings(servers: Servers, tmp_path: Path) -> None:
    given = {"JOB__MAX_EVENTS_PER_BATCH": "7"}
    own, clustered, before = contenders(
        ["ours", "ours-cluster-2"], servers, baseline=tmp_path, settings=given
    )
    assert [one.name for one in (own, clustered, before)] == ["ours", "ours, 2 Spark workers", "before"]
    assert isinstance(own, Ours)
    assert isinstance(before, Ours)
    assert isinstance(clustered, Clustered)
    assert own.settings == before.settings
    assert own.settings["JOB__MAX_EVENTS_PER_BATCH"] == clustered.settings["JOB__MAX_EVENTS_PER_BATCH"] == "7"
    assert before.checkout.folder == tmp_path.resolve()


def test_all_have_the_same_transaction_timeout_where_one_is_given(servers: Servers) -> None:
    own, peer = contenders(["ours", "flink-heap-1s"], servers, transaction_timeout_s=20)
    assert isinstance(own, Ours)
    assert own.settings["PUBLISHER__TRANSACTION_TIMEOUT_MS"] == "20000"
    assert getattr(peer, "transaction_timeout_s", None) == 20


def test_an_unknown_name_is_refused_with_the_known_ones(servers: Servers) -> None:
    with pytest.raises(ValueError, match="flink-heap-1s"):
        contenders(["nobody"], servers)

"""Requests and answers that the network loses, holds back or delivers late, and links that are slow or flap: each event arrives once."""

from collections.abc import Callable

import pytest

from service.lifecycle.fault_points import Action, Fault
from tests.support.faults.matrix import Matrix
from tests.support.faults.publisher_cells import PublisherCell, run_cells
from tests.support.faults.publisher_scenario import PublisherScenario, SetUp
from tests.support.proxies.kafka import KafkaProxy, Link, Lost
from tests.support.proxies.kafka_protocol import Api
from tests.support.servers.proxied_kafka import ProxiedKafka

# Small pieces with a pause before each: a round trip takes tens of milliseconds, a larger message far more.
SLOW = Link(piece_bytes=256, delay_s=0.01)
FLAPPING = Link(cut_after=20, cuts=12)
SLOW_AND_FLAPPING = Link(piece_bytes=256, delay_s=0.005, cut_after=30, cuts=6)
_BATCHES = 3
_OPENING = (Api.INIT_PRODUCER_ID, Api.FIND_COORDINATOR)


def lost(proxy: KafkaProxy, api: Api, what: Lost) -> PublisherCell:
    """One request or its answer is lost, with the connection."""

    def strike(scenario: PublisherScenario) -> str:
        scenario.start()
        scenario.wait_until_drained()
        proxy.lose(api, what)
        if api in _OPENING:
            scenario.meet(Fault("transaction.after_begin", Action.RAISE), batches=_BATCHES)
        else:
            scenario.feed(_BATCHES)
        scenario.wait_until(lambda: proxy.has_lost, f"a lost {api.title}")
        return f"{what.split(';')[0]} lost, connection cut"

    return PublisherCell(
        "a working lane", f"{api.title}: {what}", "cut", strike, detail="between publisher and broker"
    )


def late_commit(proxy: KafkaProxy) -> PublisherCell:
    """The commit is held up in the network, asked for again and done; in the next transaction the publisher dies, and the request arrives.

    librdkafka asks again by itself (rd_kafka_txn_handle_EndTxn), in the same producer epoch; in that one nothing distinguishes the late
    request from the commit of the transaction that is open by then, without its progress record.
    """

    def strike(scenario: PublisherScenario) -> str:
        scenario.start()
        scenario.wait_until_drained()
        proxy.lose(Api.END_TXN, Lost.LATE)
        scenario.meet(
            Fault("transaction.after_commit", Action.PASS),
            Fault("transaction.before_progress", Action.HOLD),
            batches=_BATCHES,
        )
        scenario.wait_until(lambda: proxy.has_lost, "a lost EndTxn")
        # The one before is over then, and its markers are written.
        scenario.wait_until(lambda: "Ongoing" in scenario.states(), "the next transaction")
        scenario.wait_until(scenario.open_transactions, "events of the next transaction")
        scenario.publisher.kill()
        code = proxy.deliver_late()
        return (
            f"the broker refuses the late commit, error {code}"
            if code
            else "the broker takes the late commit"
        )

    return PublisherCell(
        "the next transaction is open",
        f"{Api.END_TXN.title}: {Lost.LATE}",
        "cut, kill",
        strike,
        detail="the commit was asked for again and answered",
    )


def bad(proxy: KafkaProxy, name: str, link: Link, detail: str) -> PublisherCell:
    """The network is bad while a backlog goes out; one that flaps gets well after a number of cuts."""

    def strike(scenario: PublisherScenario) -> str:
        scenario.start()
        scenario.wait_until_drained()
        proxy.set_link(link)
        scenario.feed(_BATCHES)
        scenario.wait_until(lambda: proxy.cuts >= link.cuts, lambda: f"{link.cuts} cuts, made {proxy.cuts}")
        scenario.wait_until_drained()
        return f"{proxy.cuts} cuts" if link.cuts else "delivered slowly"

    def recover(scenario: PublisherScenario) -> str:
        proxy.set_link(Link())
        return scenario.recover()

    return PublisherCell("a backlog", name, "proxy", strike, recover, detail=detail)


@pytest.mark.guarantee(32)
@pytest.mark.faults
@pytest.mark.timeout(1_800)
def test_lost_answers_and_bad_links_lose_and_repeat_nothing(
    set_up: SetUp, own_kafka: ProxiedKafka, proxy: KafkaProxy, matrix: Matrix, tell: Callable[[str], None]
) -> None:
    apis = (Api.END_TXN, Api.ADD_PARTITIONS, Api.PRODUCE, Api.INIT_PRODUCER_ID, Api.FIND_COORDINATOR)
    cells = [lost(proxy, api, what) for api in apis for what in (Lost.REQUEST, Lost.ANSWER)]
    cells += [
        bad(proxy, "slow link", SLOW, "256 bytes every 10 ms"),
        bad(proxy, "flapping link", FLAPPING, "all connections cut after every 20 requests, 12 times"),
        bad(
            proxy,
            "slow and flapping link",
            SLOW_AND_FLAPPING,
            "256 bytes every 5 ms, cut after every 30 requests, 6 times",
        ),
    ]
    scenario = set_up(
        bootstrap=own_kafka.bootstrap_servers, through=proxy.address, transaction_timeout_ms=5_000
    )
    run_cells(matrix, "the network", cells, scenario, tell)


@pytest.mark.guarantee(32)
@pytest.mark.faults
@pytest.mark.timeout(1_800)
def test_a_commit_that_arrives_late_commits_no_other_transaction(
    set_up: SetUp, own_kafka: ProxiedKafka, proxy: KafkaProxy, matrix: Matrix, tell: Callable[[str], None]
) -> None:
    # One lane, so that the transaction after the one with the lost commit is that lane's.
    scenario = set_up(bootstrap=own_kafka.bootstrap_servers, through=proxy.address, lanes=1)
    run_cells(matrix, "the network, one lane", [late_commit(proxy)], scenario, tell)

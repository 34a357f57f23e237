"""The proxy of the network faults does to one request, on one side of the broker, what it was told; and nothing to the others."""

import socket
import struct
import threading
from collections.abc import Iterator

import pytest

from tests.support.proxies.kafka import KafkaProxy, Link, Lost
from tests.support.proxies.kafka_protocol import Api, Frames, correlation_of_answer, correlation_of_request

_REFUSED = 47


class Broker:
    """Answers each request with its correlation id, a throttle time and an error code."""

    def __init__(self) -> None:
        self.seen: list[int] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            self._threads.append(threading.Thread(target=self._serve, args=(client,)))
            self._threads[-1].start()

    def _serve(self, client: socket.socket) -> None:
        with client:
            requests = Frames(client)
            while not requests.ended:
                for request in requests.receive():
                    self.seen.append(correlation_of_request(request))
                    client.sendall(struct.pack(">iiih", 10, self.seen[-1], 0, _REFUSED))

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for thread in self._threads:
            thread.join()


@pytest.fixture
def broker() -> Iterator[Broker]:
    made = Broker()
    yield made
    made.close()


@pytest.fixture
def proxy(broker: Broker) -> Iterator[KafkaProxy]:
    with KafkaProxy() as running:
        running.target = broker.port
        yield running


def ask(client: socket.socket, api: Api, number: int) -> int | None:
    """Send a request; return the number that the answer carries, None when the connection is cut instead."""
    client.sendall(struct.pack(">ihhi", 8, api, 1, number))
    frames = Frames(client)
    while not (answers := list(frames.receive())):
        if frames.ended:
            return None
    return correlation_of_answer(answers[0])


def connect(proxy: KafkaProxy) -> socket.socket:
    return socket.create_connection(("127.0.0.1", proxy.port), 30)


@pytest.mark.parametrize(("what", "seen"), [(Lost.REQUEST, [1]), (Lost.ANSWER, [1, 2]), (Lost.LATE, [1])])
def test_one_request_is_lost_on_the_side_that_was_asked_for(
    broker: Broker, proxy: KafkaProxy, what: Lost, seen: list[int]
) -> None:
    proxy.lose(Api.END_TXN, what)
    with connect(proxy) as client:
        assert ask(client, Api.PRODUCE, 1) == 1
        lost_before = proxy.has_lost
        assert ask(client, Api.END_TXN, 2) is None
    assert (lost_before, proxy.has_lost) == (False, True)
    assert broker.seen == seen
    with connect(proxy) as client:
        assert ask(client, Api.END_TXN, 3) == 3


def test_a_late_request_reaches_the_broker_after_the_ones_that_were_sent_later(
    broker: Broker, proxy: KafkaProxy
) -> None:
    proxy.lose(Api.END_TXN, Lost.LATE)
    with connect(proxy) as client:
        assert ask(client, Api.END_TXN, 1) is None
    with connect(proxy) as client:
        assert ask(client, Api.END_TXN, 2) == 2
    assert proxy.deliver_late() == _REFUSED
    assert broker.seen == [2, 1]


def test_a_flapping_link_is_cut_as_often_as_asked_and_is_good_then(proxy: KafkaProxy) -> None:
    proxy.set_link(Link(piece_bytes=3, cut_after=2, cuts=2))
    numbers: list[int | None] = []
    for _ in range(4):
        with connect(proxy) as client:
            numbers += [ask(client, Api.PRODUCE, 1)]
            numbers += [ask(client, Api.PRODUCE, 2)] if proxy.cuts < 2 or len(numbers) > 4 else []
    assert proxy.cuts == 2
    assert numbers[-2:] == [1, 2]

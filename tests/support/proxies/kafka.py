"""A TCP proxy in front of a broker that loses, holds back, slows down and cuts what it is told."""

import select
import socket
import time
from dataclasses import dataclass
from enum import StrEnum

from devstack.processes.port import LOOPBACK
from tests.support.proxies.kafka_protocol import (
    Api,
    Frames,
    api_of,
    correlation_of_answer,
    correlation_of_request,
)
from tests.support.proxies.tcp import TcpProxy


class Lost(StrEnum):
    """What of a request is lost. The client's connection is cut with it."""

    REQUEST = "the request"  # the broker never sees it
    ANSWER = "the answer"  # the broker has done it, the client never hears of it
    LATE = "the answer; the request comes late"  # the broker gets it when `deliver_late` is called


@dataclass(frozen=True)
class Link:
    """How the network is. The defaults are those of a good one."""

    piece_bytes: int = 1 << 20
    delay_s: float = 0.0
    """Seconds before each piece."""
    cut_after: int = 0
    """Every so many requests, all connections are cut (0: never)."""
    cuts: int = 0
    """After so many cuts the network is good again."""


class KafkaProxy(TcpProxy):
    """In front of a broker's listener. `target` must be set before the first connection."""

    def __init__(self) -> None:
        super().__init__()
        self.target = 0
        """Port of the broker's listener, which advertises `port`."""
        self.link = Link()
        self.cuts = 0
        """How often all connections were cut, since `set_link`."""
        self._requests = 0
        self._loss: tuple[Api, Lost] | None = None
        self.has_lost = False
        """Whether the loss has happened."""
        self._late: tuple[socket.socket, bytes] | None = None

    @property
    def address(self) -> str:
        """What clients connect to."""
        return f"{LOOPBACK}:{self.port}"

    def set_link(self, link: Link) -> None:
        """Change the network."""
        with self._lock:
            self.link, self.cuts, self._requests = link, 0, 0

    def lose(self, api: Api, what: Lost) -> None:
        """Lose the next one of these requests."""
        with self._lock:
            self._loss, self.has_lost = (api, what), False

    def deliver_late(self) -> int:
        """Hand the late request to the broker and return the error code that it answers (EndTxn of a version below 3)."""
        assert self._late is not None
        server, request = self._late
        self._late = None
        with server:
            server.settimeout(30.0)
            server.sendall(request)
            frames = Frames(server)
            while not (answers := list(frames.receive())):
                assert not frames.ended, "the broker closed the connection on the late request"
        return int.from_bytes(answers[0][12:14], "big", signed=True)

    def _server_address(self) -> tuple[str, int]:
        return LOOPBACK, self.target

    def _forward(self, client: socket.socket, server: socket.socket) -> None:
        requests, answers = Frames(client), Frames(server)
        dropped: int | None = None
        while not (requests.ended or answers.ended):
            for ready in select.select([client, server], [], [])[0]:
                if ready is server:
                    for answer in answers.receive():
                        if correlation_of_answer(answer) == dropped:
                            self.has_lost = True
                            return
                        self._send(client, answer)
                    continue
                for request in requests.receive():
                    lost = self._due(request)
                    if lost is Lost.LATE:
                        self._late = (server.dup(), request)  # it outlives this connection
                    if lost in (Lost.REQUEST, Lost.LATE):
                        self.has_lost = True
                        return
                    if lost is Lost.ANSWER:
                        dropped = correlation_of_request(request)
                    self._send(server, request)
                    if self._is_time_to_cut():
                        self.cut()

    def _due(self, request: bytes) -> Lost | None:
        with self._lock:
            if self._loss is None or self._loss[0] != api_of(request):
                return None
            (_, what), self._loss = self._loss, None
            return what

    def _is_time_to_cut(self) -> bool:
        with self._lock:
            self._requests += 1
            link = self.link
            if not link.cut_after or self.cuts >= link.cuts or self._requests % link.cut_after:
                return False
            self.cuts += 1
            return True

    def _send(self, to: socket.socket, message: bytes) -> None:
        link = self.link
        for start in range(0, len(message), link.piece_bytes):
            if link.delay_s:
                time.sleep(link.delay_s)
            to.sendall(message[start : start + link.piece_bytes])

    def __exit__(self, *_: object) -> None:
        super().__exit__()
        if self._late is not None:
            self._late[0].close()

"""The health check of a container ends, whatever answers at the port."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import pytest

from service import probe as probing
from service.probe import probe

HEAD = b"HTTP/1.0 %d Said\r\nContent-Type: text/plain\r\n\r\n"


@contextmanager
def answering(head: bytes, body: Iterator[bytes]) -> Iterator[str]:
    """Serve one connection; the address to ask."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            with suppress(OSError):
                connection, _ = listening.accept()
                with connection:
                    connection.recv(65_536)
                    connection.sendall(head)
                    for piece in body:
                        connection.sendall(piece)

        thread = threading.Thread(target=serve)
        thread.start()
        yield f"http://127.0.0.1:{listening.getsockname()[1]}/readyz"
    thread.join()


@pytest.mark.parametrize(("status", "code"), [(200, 0), (503, 1)])
def test_the_answer_and_its_verdict_are_told(status: int, code: int) -> None:
    with answering(HEAD % status, iter([b"as it ", b"is\n"])) as url:
        assert probe(url) == (code, "as it is")


@pytest.mark.parametrize("status", [200, 503])
def test_an_answer_without_an_end_fills_no_memory(status: int) -> None:
    sent = 0

    def endless() -> Iterator[bytes]:
        nonlocal sent
        while sent < 64 << 20:
            sent += 65_536
            yield bytes(65_536)

    with answering(HEAD % status, endless()) as url:
        code, text = probe(url)
    assert code == 1
    assert text == f"{url}: the answer has over 1048576 bytes"
    assert sent < 64 << 20


def test_an_answer_that_never_comes_to_its_end_keeps_nobody_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probing, "_TIMEOUT_S", 0.2)
    over = threading.Event()

    def dripping() -> Iterator[bytes]:
        while not over.wait(0.05):
            yield b"."

    asked: list[tuple[int, str]] = []
    with answering(HEAD % 200, dripping()) as url:
        asking = threading.Thread(target=lambda: asked.append(probe(url)), daemon=True)
        asking.start()
        asking.join(20)
        over.set()
    assert asked == [(1, f"{url}: no whole answer within 0.2 s")]

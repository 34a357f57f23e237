"""The console of a publisher that delivers: a part of its process that the delivery never waits for."""

import signal
import socket
from pathlib import Path

import psutil
import psycopg
import pytest

from service.settings import Settings
from tests.support.console import Console
from tests.support.outbox.batches import Outbox, simple
from tests.support.outbox.deliveries import drained
from tests.support.outbox.replays import ConsoleProcess
from tests.support.pages.connections import silent_clients
from tests.support.processes.publishers import publisher_service
from tests.support.waiting import wait_until


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def answers(console: Console, path: str) -> bool:
    try:
        return console.get(path).status == 200
    except OSError:
        return False


def test_a_publisher_serves_it_and_ends_though_somebody_watches(
    outbox: Outbox, settings: Settings, tmp_path: Path
) -> None:
    port = free_port()
    console = Console(port)
    variables = {"OUTBOX_CONSOLE__PORT": str(port), "OUTBOX_CONSOLE__REFRESH_S": "0.2"}
    with publisher_service(settings, tmp_path / "log", variables) as publisher:
        wait_until(lambda: answers(console, "/"), "the console")
        outbox.batch(simple(1, keys=20))
        wait_until(lambda: drained(outbox.dsn), "the delivery")
        assert "is not ready" not in console.shown("/")
        with socket.create_connection(("127.0.0.1", port)) as watching:
            watching.sendall(b"GET /live?page=/ HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert watching.recv(100).startswith(b"HTTP/1.1 200")
            assert publisher.terminate() == 0


@pytest.mark.guarantee(135)
def test_a_publisher_delivers_while_its_console_hangs_and_its_port_is_taken(
    outbox: Outbox, settings: Settings, tmp_path: Path
) -> None:
    log = tmp_path / "log"
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        variables = {"OUTBOX_CONSOLE__PORT": str(port), "OUTBOX_CONSOLE__STATEMENT_TIMEOUT_MS": "20000"}
        with publisher_service(settings, log, variables):
            outbox.batch(simple(1, keys=20))
            wait_until(lambda: drained(outbox.dsn), "the delivery without a console")
            assert "console_not_served" in log.read_text("utf-8")
            taken.close()
            console = Console(port)
            wait_until(lambda: answers(console, "/batches"), "the console on its port")
            with psycopg.connect(outbox.dsn) as blocker:
                # Nothing that a lane reads.
                blocker.execute("LOCK TABLE outbox.dead_letter IN ACCESS EXCLUSIVE MODE")
                waiting = [socket.create_connection(("127.0.0.1", port)) for _ in range(12)]
                for each in waiting:
                    each.sendall(b"GET /letters HTTP/1.1\r\nHost: localhost\r\n\r\n")
                outbox.batch(simple(2, keys=20))
                wait_until(lambda: drained(outbox.dsn), "the delivery beside pages that hang")
                for each in waiting:
                    each.close()


def test_the_command_serves_it_without_a_publisher(
    outbox: Outbox, settings: Settings, tmp_path: Path
) -> None:
    outbox.batch(simple(1, keys=3))
    port = free_port()
    console = Console(port)
    with ConsoleProcess(settings, tmp_path / "log", "--port", str(port)) as running:
        wait_until(lambda: answers(console, "/"), running.log)
        assert "no publisher runs" in console.shown("/")
        assert "k0001" in console.shown("/batch?id=1")
        with ConsoleProcess(settings, tmp_path / "second", "--port", str(port)) as second:
            assert second.wait() == 2
            assert "cannot listen on" in second.log()
        running.process.send_signal(signal.SIGTERM)
        assert running.wait() == 0
        assert f"http://127.0.0.1:{port}/" in running.log()


def test_a_publisher_delivers_and_shows_its_pages_beside_any_number_of_silent_connections(
    outbox: Outbox, settings: Settings, tmp_path: Path
) -> None:
    port = free_port()
    console = Console(port)
    with publisher_service(settings, tmp_path / "log", {"OUTBOX_CONSOLE__PORT": str(port)}) as publisher:
        outbox.batch(simple(1, keys=20))
        wait_until(lambda: answers(console, "/") and drained(outbox.dsn), "the first delivery")
        before = psutil.Process(publisher.pid).num_fds()
        clients: list[socket.socket] = []
        try:
            for number in range(2, 5):
                clients += silent_clients(port, 400)
                assert console.get("/").status == 200
                outbox.batch(simple(number, keys=20))
                wait_until(lambda: drained(outbox.dsn), f"delivery {number}")
                assert psutil.Process(publisher.pid).num_fds() <= before + 100
        finally:
            for client in clients:
                client.close()
        assert publisher.terminate() == 0

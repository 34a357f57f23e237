"""Serves the console in a separate thread. Nothing else waits for that thread."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import structlog

from publisher.console.alerts.observed import NotReady
from service.errors import SettingsError
from service.lifecycle.threads import supervised
from service.observability.endpoint import listen
from service.settings import Settings

_log = structlog.get_logger()

_RETRY_S = 10.0
_JOIN_S = 3.0
_MISSING = "its packages are not installed: pip install 'spark-outbox[console]'"


@contextmanager
def served(settings: Settings, not_ready: NotReady = lambda: ()) -> Iterator[None]:
    """Serve the console according to `[console]` until the block ends. Tries again after a failure, such as a port in use; raises
    nothing."""
    if settings.console.port == 0:
        yield
        return
    ended = threading.Event()
    thread = supervised(lambda: _serve_until(settings, not_ready, ended), "console", ended)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join(_JOIN_S)


@contextmanager
def serving(settings: Settings, not_ready: NotReady = lambda: ()) -> Iterator[int]:
    """Serve the console until the block ends; yield its port. The system chooses the port if the setting is 0. Raises SettingsError if the
    console cannot be served."""
    try:
        console = _Console(settings, not_ready)
    except ImportError as error:
        raise SettingsError(f"the console cannot be served: {_MISSING} ({error})") from error
    except (OSError, UnicodeError) as error:
        raise SettingsError(
            f"the console cannot listen on {settings.console.host}:{settings.console.port}: "
            f"{getattr(error, 'strerror', None) or error}. Correct [console] host and port (OUTBOX_CONSOLE__PORT)"
        ) from error
    ended, serving = threading.Event(), [console]

    def run() -> None:
        if not serving:  # the previous server has failed, and its socket is closed
            serving.append(_Console(settings, not_ready))
        try:
            serving[0].run()
        finally:
            serving.clear()

    thread = supervised(run, "console", ended)
    thread.start()
    try:
        yield console.port
    finally:
        ended.set()
        for each in list(serving):
            each.stop()
        thread.join(_JOIN_S)


def _serve_until(settings: Settings, not_ready: NotReady, ended: threading.Event) -> None:
    said = ""
    while not ended.is_set():
        try:
            with serving(settings, not_ready) as port:
                _log.info(
                    "console", address=f"http://{settings.console.host}:{port}{settings.console.path_prefix}/"
                )
                ended.wait()
        except Exception as error:  # noqa: BLE001 - the delivery does not need it
            if str(error) != said:
                said = str(error)
                _log.warning("console_not_served", reason=said)
            ended.wait(_RETRY_S)


class _Console:
    """A listening socket and its server."""

    def __init__(self, settings: Settings, not_ready: NotReady) -> None:
        """Listen. Raises ImportError, OSError, UnicodeError."""
        from publisher.console.app import ConsoleApp
        from publisher.console.http.connections import LimitedServer
        from publisher.console.reader import Reader

        console = settings.console
        self._socket = listen(console.host, console.port)
        self._socket.setblocking(False)
        self.port: int = self._socket.getsockname()[1]
        self._reader = Reader(settings)
        self._app = ConsoleApp(settings, self._reader, not_ready)
        self._server = LimitedServer(
            self._app.asgi,
            ws="none",
            lifespan="off",
            log_config=None,
            log_level="critical",
            access_log=False,
            server_header=False,
            proxy_headers=False,
            timeout_keep_alive=5,
            timeout_graceful_shutdown=1,
            h11_max_incomplete_event_size=32_768,
        )

    def run(self) -> None:
        """Answer requests until `stop` is called."""
        try:
            self._server.run(sockets=[self._socket])
        finally:
            self._socket.close()
            self._app.close()
            with suppress(Exception):
                self._reader.close()

    def stop(self) -> None:
        """End the server. Requests under way have one more second."""
        self._server.should_exit = True

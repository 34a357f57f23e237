"""Composes the console as an ASGI application: routes and the texts of errors."""

from functools import partial
from importlib.resources import files
from typing import Any

import anyio
import anyio.to_thread
import psycopg
import structlog
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import ASGIApp

from publisher.console.alerts.observed import NotReady
from publisher.console.consumers import Consumers
from publisher.console.http.access import Access, is_still_let_in
from publisher.console.http.live import MOST_WATCHERS, LivePage, Watchers
from publisher.console.http.login import Login
from publisher.console.http.token_throttle import TokenThrottle
from publisher.console.pages import (
    PAGES,
    ConsolePage,
    NotThereError,
    PageRequest,
    WrongAddressError,
    read_page,
)
from publisher.console.reader import MOST_CONNECTIONS, Reader
from publisher.console.rendering.html import Rendering, query
from publisher.console.rendering.schemas import SchemaLookup, ShownValues
from publisher.console.search import SearchOutcome
from service.errors import OutboxError, UnavailableError
from service.lifecycle.tracebacks import release_frames
from service.settings import Settings

_log = structlog.get_logger()

_STATIC = {"console.css": "text/css", "console.js": "text/javascript", "icon.svg": "image/svg+xml"}


class ConsoleApp:
    """The pages of one console, over one reader."""

    def __init__(self, settings: Settings, reader: Reader, not_ready: NotReady = lambda: ()) -> None:
        self._settings = settings
        self._reader = reader
        self._not_ready = not_ready
        self._rendering = Rendering(settings.console)
        self._schemas = SchemaLookup(settings.schema_registry) if settings.schema_registry.url else None
        self._consumers = Consumers(settings.console)
        self._limiter = anyio.CapacityLimiter(MOST_CONNECTIONS)
        throttle = TokenThrottle(settings.console)
        self._watchers = Watchers()
        self._live: dict[str, LivePage] = {}
        routes = [Route(page.path, partial(self._page, page)) for page in PAGES]
        routes += [
            Route("/live", self._events),
            Route(
                "/login", Login(settings.console, throttle, self._login_page).answer, methods=["GET", "POST"]
            ),
            Route("/static/{name}", self._static),
        ]
        app = Starlette(
            routes=routes,
            exception_handlers={HTTPException: self._refused, Exception: self._broke},
        )
        self.asgi: ASGIApp = Access(app, settings.console, throttle)

    def close(self) -> None:
        """Close the connection to the schema registry."""
        if self._schemas is not None:
            self._schemas.close()

    async def _page(self, page: ConsolePage, request: Request) -> Response:
        status, html = await self._render(page, dict(request.query_params), part=False)
        if status == 303:
            return RedirectResponse(html, 303)
        return HTMLResponse(html, status)

    async def _render(self, page: ConsolePage, values: dict[str, str], *, part: bool) -> tuple[int, str]:
        try:
            return await anyio.to_thread.run_sync(
                lambda: self._rendered(page, values, part=part), limiter=self._limiter
            )
        except Exception as error:  # noqa: BLE001 - the page shows it, and the console continues
            release_frames(error)
            status, said = explain(error)
            if status == 500:
                _log.error("console_page_failed", page=page.path, exc_info=error)
            if part:
                return status, said
            return status, self._error(status, said)

    def _rendered(self, page: ConsolePage, values: dict[str, str], *, part: bool) -> tuple[int, str]:
        """Return status and page. Runs in a thread that may wait for Postgres."""
        shown = ShownValues(show=self._settings.console.show_values, lookup=self._schemas)
        try:
            with self._reader.connection() as connection:
                request = PageRequest(
                    connection, self._settings, values, self._not_ready, shown, self._consumers
                )
                found = read_page(page, request)
        except (UnavailableError, psycopg.OperationalError) as error:
            if page.without_postgres is None:
                raise
            found = page.without_postgres(explain(error)[1])
        outcome = found.get("outcome")
        if isinstance(outcome, SearchOutcome) and outcome.key is not None:
            return 303, f"{self._settings.console.path_prefix}/session?{query({'key': outcome.key})}"
        # Only the beginning of a list follows the outbox; a person may be reading the older parts.
        live = page.live and "before" not in values
        return 200, self._rendering.page(page.template, found, path=page.path, live=live, part=part)

    async def _events(self, request: Request) -> Response:
        page = next(
            (each for each in PAGES if each.live and each.path == request.query_params.get("page")), None
        )
        if page is None:
            raise HTTPException(404, "There is no such live page.")
        if self._watchers.count >= MOST_WATCHERS:
            raise HTTPException(
                503, f"{MOST_WATCHERS} pages are open already, which is as many as are served."
            )
        if page.path not in self._live:
            self._live[page.path] = LivePage(partial(self._live_part, page), self._settings.console.refresh_s)
        console, headers = self._settings.console, request.headers
        events = self._live[page.path].events(lambda: is_still_let_in(console, headers))
        events = self._watchers.counted(events)
        return StreamingResponse(events, media_type="text/event-stream", headers={"X-Accel-Buffering": "no"})

    async def _live_part(self, page: ConsolePage) -> tuple[str, str]:
        status, text = await self._render(page, {}, part=True)
        return ("page" if status == 200 else "trouble"), text

    async def _static(self, request: Request) -> Response:
        name = request.path_params["name"]
        if name not in _STATIC:
            raise HTTPException(404, "There is no such file.")
        content = files("publisher.console").joinpath("static", name).read_bytes()
        return Response(content, media_type=_STATIC[name], headers={"Cache-Control": "max-age=300"})

    def _login_page(self, wrong: bool) -> str:
        return self._rendering.page("login.html", {"wrong": wrong}, path="/login")

    def _error(self, status: int, said: str) -> str:
        return self._rendering.page("error.html", {"status": status, "said": said}, path="")

    async def _refused(self, _request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        said = error.detail if error.status_code != 404 or " " in error.detail.strip() else "Not found."
        return HTMLResponse(self._error(error.status_code, said), error.status_code)

    async def _broke(self, _request: Request, error: Exception) -> Response:
        _log.error("console_page_failed", exc_info=error)
        return HTMLResponse(self._error(500, explain(error)[1]), 500)


def explain(error: Exception) -> tuple[int, str]:
    """Return the status and the text for the exception that ended a page."""
    said: Any = str(error).strip()
    match error:
        case NotThereError():
            return 404, said
        case WrongAddressError():
            return 400, f"The address is wrong: {said}."
        case psycopg.errors.QueryCanceled() | psycopg.errors.LockNotAvailable():
            return (
                503,
                "Postgres took longer than [console] statement_timeout_ms. Nothing else waited for this page.",
            )
        case psycopg.errors.InsufficientPrivilege():
            first = said.splitlines()[0] if said else "permission denied"
            return 403, (
                f"The console's login may not read this ({first}). Let [console] dsn (OUTBOX_CONSOLE__DSN) name a login with the role "
                "outbox_auditor."
            )
        case OutboxError():
            return 503, said
        case psycopg.OperationalError():
            return 503, f"Postgres does not answer: {said.splitlines()[0] if said else type(error).__name__}."
        case psycopg.DataError():
            return 400, "The address is wrong: Postgres cannot read a value of it."
    return (
        500,
        f"The page failed: {type(error).__name__}. The traceback is in the log (`console_page_failed`).",
    )

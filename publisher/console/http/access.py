"""Decides who may open the console, logs requests, and adds headers that keep a page from loading or sending anything elsewhere."""

import hashlib
import hmac
import time
from collections.abc import Mapping
from http.cookies import CookieError, SimpleCookie

import structlog
from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse, RedirectResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from publisher.console.http.token_throttle import TokenThrottle, TooManyWrongTokensError
from service.settings import ConsoleSettings

_log = structlog.get_logger()

COOKIE = "outbox_console"
_LASTS_S = 12 * 3600
_LOCAL = ("localhost", "127.0.0.1", "[::1]")
_OPEN = ("/login", "/static/")
SECURITY: Mapping[str, str] = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self'; "
        "base-uri 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    # Addresses may contain a session key.
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
}


class Access:
    """ASGI middleware: the login, the host's name, the methods, the headers, the log."""

    def __init__(self, app: ASGIApp, settings: ConsoleSettings, throttle: TokenThrottle) -> None:
        self._app = app
        self._settings = settings
        self._throttle = throttle

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Forward a request, or refuse it."""
        if scope["type"] != "http":
            return

        status, began = 0, time.monotonic()

        async def with_headers(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                headers = MutableHeaders(scope=message)
                for name, value in SECURITY.items():
                    headers[name] = value
                headers.setdefault("Cache-Control", "no-store")
            await send(message)

        refusal = await self._refusal(scope)
        try:
            await (refusal or self._app)(scope, receive, with_headers)
        finally:
            # Logs only requests that show data, because strangers can send any number of others. Without the query, which may contain a
            # session key.
            if refusal is None and not scope["path"].startswith(_OPEN):
                _log.info(
                    "console_request",
                    path=scope["path"],
                    status=status,
                    client=client_of(scope),
                    took_s=round(time.monotonic() - began, 3),
                )

    async def _refusal(self, scope: Scope) -> ASGIApp | None:
        """Return the answer to a refused request, None for a request that is let in."""
        path, headers = scope["path"], Headers(scope=scope)
        if scope["method"] not in ("GET", "HEAD") and not (scope["method"] == "POST" and path == "/login"):
            return PlainTextResponse("the console is read-only\n", 405, headers={"Allow": "GET, HEAD"})
        if not self._is_known_host(headers.get("host", "")):
            return PlainTextResponse(
                "the console accepts only local host names and [console] public_host: set that, or a token\n",
                403,
            )
        if _is_embedded_elsewhere(headers):
            return PlainTextResponse("another site's page may link to the console, and no more\n", 403)
        if path.startswith(_OPEN) or self._settings.token is None or _has_cookie(self._settings, headers):
            return None
        if (given := _bearer(headers)) is not None:
            try:
                if await self._throttle.is_token(given, client_of(scope)):
                    return None
            except TooManyWrongTokensError:
                return too_many_wrong_tokens()
            return PlainTextResponse("that is not the token\n", 401, headers={"WWW-Authenticate": "Bearer"})
        if path.startswith("/live"):
            return PlainTextResponse("log in first\n", 401)
        return RedirectResponse(f"{self._settings.path_prefix}/login", 303)

    def _is_known_host(self, host: str) -> bool:
        """Whether the host name is the console's. Without a login, DNS rebinding must not let another site's page reach the console."""
        if self._settings.token is not None:
            return True
        name = host if host.endswith("]") else host.rpartition(":")[0] or host
        own = (*_LOCAL, self._settings.host, self._settings.public_host)
        return bool(name) and name.lower() in {each.lower() for each in own}


def is_still_let_in(settings: ConsoleSettings, headers: Headers) -> bool:
    """Whether the login of an admitted request still holds. Its cookie may have expired, or the token may have changed."""
    if settings.token is None or _has_cookie(settings, headers):
        return True
    return settings.is_token(_bearer(headers) or "")


def _has_cookie(settings: ConsoleSettings, headers: Headers) -> bool:
    try:
        cookie = SimpleCookie(headers.get("cookie", "")).get(COOKIE)
    except CookieError:
        return False
    return cookie is not None and is_valid(settings, cookie.value, time.time())


def _bearer(headers: Headers) -> str | None:
    scheme, _, given = headers.get("authorization", "").partition(" ")
    return given.strip() if scheme.lower() == "bearer" else None


def _is_embedded_elsewhere(headers: Headers) -> bool:
    """Whether a page of another site, or of this site's other hosts and ports, caused the request, except by top-level navigation.
    Each answer costs queries, and the page could measure their time.
    """
    asked = headers.get("sec-fetch-mode"), headers.get("sec-fetch-dest")
    return headers.get("sec-fetch-site") in ("cross-site", "same-site") and asked != ("navigate", "document")


def client_of(scope: Scope) -> str:
    """Return the client's address; behind a proxy, the proxy's address."""
    client = scope.get("client")
    return str(client[0]) if client else ""


def too_many_wrong_tokens() -> PlainTextResponse:
    """Return the answer to a token that was not checked."""
    return PlainTextResponse("too many wrong tokens: try again\n", 429, headers={"Retry-After": "1"})


def new_cookie(settings: ConsoleSettings, now: float) -> tuple[str, int]:
    """Return the cookie's value for a client that gave the token, and its lifetime in seconds."""
    until = int(now) + _LASTS_S
    return f"{until}.{_sign(settings.token_now(), until)}", _LASTS_S


def is_valid(settings: ConsoleSettings, value: str, now: float) -> bool:
    """Whether this console made the cookie with the present token, and the cookie has not expired."""
    until, _, signature = value.partition(".")
    if not (until.isascii() and until.isdigit() and len(until) < 12):
        return False
    token = settings.token_now()
    if not token:
        return False
    signed = hmac.compare_digest(signature.encode("utf-8", "replace"), _sign(token, int(until)).encode())
    return signed and now < int(until)


def _sign(token: str, until: int) -> str:
    key = hashlib.sha256(b"outbox console\0" + token.encode()).digest()
    return hmac.new(key, str(until).encode(), hashlib.sha256).hexdigest()

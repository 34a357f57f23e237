"""The login page: takes the console's token, and gives the browser a cookie. access.py checks the cookie of every other request."""

import time
from collections.abc import Callable
from urllib.parse import parse_qs

import structlog
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from publisher.console.http.access import COOKIE, client_of, new_cookie, too_many_wrong_tokens
from publisher.console.http.token_throttle import TokenThrottle, TooManyWrongTokensError
from service.settings import ConsoleSettings

_log = structlog.get_logger()

_MOST_BYTES = 4_096


class Login:
    """Answers `/login`."""

    def __init__(
        self, settings: ConsoleSettings, throttle: TokenThrottle, page: Callable[[bool], str]
    ) -> None:
        """`page` returns the form's HTML; its argument: whether the token given before was wrong."""
        self._settings = settings
        self._throttle = throttle
        self._page = page

    async def answer(self, request: Request) -> Response:
        """Return the form, or judge the token that was posted. A console without a token has no login."""
        home = f"{self._settings.path_prefix}/"
        if self._settings.token is None:
            return RedirectResponse(home, 303)
        if request.method != "POST":
            return HTMLResponse(self._page(False))
        try:
            given = await _token(request)
        except ClientDisconnect:
            return Response(status_code=400)  # nobody reads it
        try:
            is_token = await self._throttle.is_token(given, client_of(request.scope))
        except TooManyWrongTokensError:
            return too_many_wrong_tokens()
        if not is_token:
            return HTMLResponse(self._page(True), 403)
        _log.info("console_login", client=client_of(request.scope))
        value, lasts_s = new_cookie(self._settings, time.time())
        response = RedirectResponse(home, 303)
        response.set_cookie(
            COOKIE,
            value,
            max_age=lasts_s,
            path=home,
            httponly=True,
            samesite="strict",
            secure=request.headers.get("x-forwarded-proto") == "https",
        )
        return response


async def _token(request: Request) -> str:
    body = b""
    async for chunk in request.stream():
        body += chunk
        if len(body) > _MOST_BYTES:
            raise HTTPException(413, "That is too long for a token.")
    return parse_qs(body.decode("utf-8", "replace")).get("token", [""])[0]

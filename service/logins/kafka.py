"""`[kafka] login`: tokens for the clients of this process, of librdkafka (`logged_in`) and, in the job, of Spark (`token_source`).

Executors receive only data: a client's options, which name the login. The code that makes a client passes them to `logged_in`.

A long-lived client whose credentials were refused is replaced, with the secrets of that moment: service/kafka/renewable_client.py.
"""

import functools
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import structlog
from confluent_kafka import KafkaError, KafkaException

from service.errors import SettingsError, UnavailableError
from service.lifecycle.tracebacks import without_traceback
from service.logins import aws, azure, google, plugin, shown
from service.logins.options import named_login

_log = structlog.get_logger()

_OWN: Mapping[str, Callable[[str], tuple[Any, ...]]] = {
    "aws-msk-iam": aws.kafka_token,
    "azure-entra": azure.kafka_token,
    "google": google.kafka_token,
}
NO_TOKEN = "[kafka] login = "
"""The beginning of the message if a login gave no token."""
# librdkafka asks for the next token after 80 % of the last one's life: by then there must be a new one.
_RENEW_AFTER = 0.7
# Seconds before a failed login is asked again.
_PAUSE_S = 10.0


class LoginFailedError(UnavailableError, KafkaException):
    """A login gave no token. Code that uses Kafka treats it as a Kafka that does not answer."""

    def __init__(self, reason: str) -> None:
        super().__init__(KafkaError(KafkaError._TRANSPORT, reason))
        self.reason = reason

    def __str__(self) -> str:
        return self.reason


class KafkaToken(NamedTuple):
    """`expires_at`: seconds since 1970. `principal`: the identity, if the plugin names one."""

    value: str
    expires_at: float
    principal: str = ""


class TokenSource:
    """The newest token of a login. Thread-safe: each client's thread asks for it."""

    def __init__(self, login: str, bootstrap_servers: str) -> None:
        self._login = login
        self._servers = bootstrap_servers
        self._lock = threading.Lock()
        self._token: KafkaToken | None = None
        self._renew_at = 0.0
        self._failed: LoginFailedError | SettingsError | None = None

    def token(self) -> KafkaToken:
        """Return a valid token, a new one if the last is old. Raises LoginFailedError, SettingsError."""
        token = self._good()
        if token is not None and time.time() < self._renew_at:
            return token
        # One thread asks; the others have a valid token, or wait for the answer.
        if not self._lock.acquire(blocking=token is None):
            assert token is not None
            return token
        try:
            if time.time() >= self._renew_at:
                self._renew()
            token = self._good()
            if token is None:
                raise without_traceback(self._failed or self._expired()) from None
            return token
        finally:
            self._lock.release()

    def for_librdkafka(self, _config: str) -> tuple[str, float, str, dict[str, str]]:
        """Return a token to librdkafka, in a thread of the client. If this raises, librdkafka asks again after ten seconds."""
        try:
            token = self.token()
        except (LoginFailedError, SettingsError) as error:
            _log.warning("login_failed", login=self._login, reason=str(error))
            raise RuntimeError("no token") from None
        return token.value, token.expires_at, token.principal, {}

    def _good(self) -> KafkaToken | None:
        token = self._token
        return token if token is not None and time.time() < token.expires_at else None

    def _renew(self) -> None:
        now = time.time()
        try:
            made = self._made(now)
        except (LoginFailedError, SettingsError) as error:
            # Noted after the call, which may take long: the waiting threads get this answer, too. Its frames may hold a token.
            self._failed, self._renew_at = without_traceback(error), time.time() + _PAUSE_S
            if (former := self._good()) is not None:
                left_s = round(former.expires_at - time.time())
                _log.warning(
                    "login_failed", login=self._login, reason=str(error), former_token_lasts_s=left_s
                )
            return
        self._token = made
        self._renew_at = now + _RENEW_AFTER * (made.expires_at - now)

    def _made(self, now: float) -> KafkaToken:
        try:
            made = KafkaToken(*plugin("kafka", self._login, _OWN)(self._servers))
            is_usable = made.value.isprintable() and made.expires_at > now
        except (SettingsError, KeyboardInterrupt, GeneratorExit):
            raise
        except BaseException as error:  # noqa: BLE001 - a plugin may raise anything
            # Its frames may hold a token.
            raise LoginFailedError(f"{NO_TOKEN}{self._login!r} gave no token: {shown(error)}") from None
        if not is_usable:
            raise self._expired()
        return made

    def _expired(self) -> LoginFailedError:
        return LoginFailedError(
            f"{NO_TOKEN}{self._login!r} gave a token that has expired, or is none. Is this machine's clock right?"
        )


@functools.cache
def token_source(login: str, bootstrap_servers: str) -> TokenSource:
    """Return this process' source of a login's tokens."""
    return TokenSource(login, bootstrap_servers)


def logged_in(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of a client, `KafkaSettings.client()`, with a source of tokens if they name a login.

    A client without its first token would report that only after ten seconds. Raises LoginFailedError, SettingsError.
    """
    login = named_login(options)
    if login is None:
        return dict(options)
    source = token_source(login, str(options["bootstrap.servers"]))
    source.token()
    return {**options, "oauth_cb": source.for_librdkafka}

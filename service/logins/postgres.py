"""`[postgres] login`: a new password for each connection.

db/connection.py reads a password in `dsn_file` again for each connection.
"""

from collections.abc import Callable, Mapping
from typing import Any

from service.errors import SettingsError, UnavailableError
from service.logins import aws, azure, google, plugin, shown
from service.settings import PostgresSettings
from service.settings.dsn import is_remote, libpq_options, ssl_mode

_OWN: Mapping[str, Callable[[str, int, str], str]] = {
    "aws-rds": aws.postgres_password,
    "azure": azure.postgres_password,
    "google-cloud-sql": google.postgres_password,
}


def by_login(settings: PostgresSettings) -> dict[str, Any]:
    """Return the password for a new connection as libpq's option; nothing without a login.

    Raises SettingsError for a DSN that would send the password in clear text or to an impostor, or does not name one host and a user;
    UnavailableError if the login gives none.
    """
    if settings.login is None:
        return {}
    options = libpq_options(settings.dsn)
    host, user = options.get("host", ""), options.get("user", "")
    if not host or "," in host or not user:
        raise SettingsError(
            f"[postgres] login = {settings.login!r} needs a dsn with one host and a user: the password is theirs"
        )
    mode = ssl_mode(options)
    # `require` verifies nothing if the file of sslrootcert is missing; a public authority certifies any name for `verify-ca`.
    if is_remote(options) and mode != "verify-full":
        raise SettingsError(
            f"[postgres] login = {settings.login!r} needs TLS that verifies the server and its name, because it receives the password in "
            f"clear: sslmode={mode} does not. Say sslmode=verify-full and sslrootcert in the dsn"
        )
    try:
        made: str = plugin("postgres", settings.login, _OWN)(host, int(options.get("port", 5432)), user)
        if not isinstance(made, str) or not made:
            raise TypeError("no text")
    except (SettingsError, KeyboardInterrupt, GeneratorExit):
        raise
    except BaseException as error:  # noqa: BLE001 - a plugin may raise anything
        # Its frames may hold a password.
        raise UnavailableError(
            f"Postgres at {settings.address()} cannot be used: [postgres] login = {settings.login!r} gave no password: {shown(error)}"
        ) from None
    return {"password": made}

"""A DSN as a setting: what it may look like, and what messages may show of it.

For libpq, user name and password end at the first `@` unless a `/` precedes it. So the rest of a password that is not percent-encoded
becomes host or database, which messages show. Such a DSN is refused.
"""

import ipaddress
import re
from collections.abc import Mapping
from itertools import zip_longest
from pathlib import Path
from typing import Annotated

from psycopg import ProgrammingError
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.pq import Conninfo, PGconn, version
from pydantic import AfterValidator, SecretStr

_URI = re.compile(r"postgres(?:ql)?://(.*)", re.DOTALL)
_PORT = re.compile(r"\d*")
# The first libpq for which `sslrootcert=system` is no file.
_KNOWS_SYSTEM = 160_000
# With such a `target_session_attrs`, libpq completes its options and then refuses to connect, before it asks the network anything.
_REFUSED = "none"
_HIDDEN = "(its text is not shown: it may be secret)"
_ENCODE = f"percent-encode user name and password: @ is %40, / is %2F, : is %3A, % is %25 {_HIDDEN}"


def _usable(secret: SecretStr) -> SecretStr:
    """Return a DSN without the spaces around it. Raises ValueError, which shows nothing of it."""
    dsn = secret.get_secret_value().strip()
    uri = _URI.fullmatch(dsn)
    if uri is not None:
        before, at, after = uri[1].partition("@")
        if "@" in after or (at and "/" in before):
            raise ValueError(f"the DSN has an @ or a / where none may be: {_ENCODE}")
    try:
        if "\0" in dsn:
            raise ProgrammingError
        parts = conninfo_to_dict(dsn)
    except ProgrammingError:
        # libpq's message quotes the text.
        raise ValueError(f"the DSN is neither a libpq URI nor key=value pairs. In a URI, {_ENCODE}") from None
    if not all(_PORT.fullmatch(port) for port in str(parts.get("port") or "").split(",")):
        raise ValueError(f"the DSN has a port that is no number: {_ENCODE}")
    hosts = f"{parts.get('host') or ''},{parts.get('hostaddr') or ''}".split(",")
    # A socket's folder, or an abstract socket's name.
    if any(not host.startswith(("/", "@")) and re.search("[@/]", host) for host in hosts):
        raise ValueError(f"the DSN has a host with an @ or a /: {_ENCODE}")
    if "://" in str(parts.get("dbname") or ""):
        raise ValueError(f"the DSN names another DSN as its database {_HIDDEN}")
    return SecretStr(dsn)


PLAIN_MODES = ("disable", "allow", "prefer")
"""Values of `sslmode` that allow a connection without TLS."""

Dsn = Annotated[SecretStr, AfterValidator(_usable)]


def read_secret(file: Path, name: str) -> str:
    """Return the content of a setting's file, without the spaces around it. Raises ValueError, also if there is none."""
    try:
        content = file.read_text("utf-8-sig").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"{name} {str(file)!r} cannot be read: {error}") from None
    if not content:
        # A file that is being written may be empty. It must not mean a console without a login, or libpq's own defaults.
        raise ValueError(f"{name} {str(file)!r} is empty")
    return content


def dsn_from(file: Path, name: str) -> SecretStr:
    """Return the DSN that a file holds. Raises ValueError."""
    return _usable(SecretStr(read_secret(file, name)))


def address(dsn: SecretStr) -> str:
    """Return each host with its port, and the database, without user and password, for messages."""
    parts = {option.keyword.decode(): option.val.decode() for option in Conninfo.get_defaults() if option.val}
    given = {name: str(value) for name, value in conninfo_to_dict(dsn.get_secret_value()).items() if value}
    if "service" in given and not given.keys() & {"host", "hostaddr"}:
        return f"service {given['service']!r} of the connection service file"
    parts |= given
    hosts = (parts.get("host") or parts.get("hostaddr") or "the local socket").split(",")
    ports = [port or "5432" for port in parts.get("port", "").split(",")]
    # In libpq, a single port belongs to every host.
    addresses = zip(hosts, ports if len(ports) == len(hosts) else ports[:1] * len(hosts), strict=True)
    return f"{','.join(f'{host}:{port}' for host, port in addresses)}/{parts.get('dbname', '')}"


def libpq_options(dsn: SecretStr) -> dict[str, str]:
    """Return the options by which libpq would connect: the DSN's, and those of the connection service file and the environment.

    Their defaults depend on each other (PGSSLROOTCERT=system raises `sslmode`, unless the DSN has another file), so libpq itself answers.
    """
    text = dsn.get_secret_value()
    given = {name: str(value) for name, value in conninfo_to_dict(text).items() if value}
    connection = PGconn.connect_start(make_conninfo(text, target_session_attrs=_REFUSED).encode())
    try:
        used = {each.keyword.decode(): each.val.decode() for each in connection.info if each.val}
    finally:
        connection.finish()
    if used.pop("target_session_attrs", None) is None:
        return given  # libpq refuses to connect: no such service, for instance
    return used | given


def secrets_in(options: Mapping[str, object]) -> list[str]:
    """Return which of libpq's options hold a secret, by their names."""
    secret = {option.keyword.decode() for option in Conninfo.get_defaults() if option.dispchar == b"*"}
    # libpq marks no keys as secret; with the client's anybody logs in, with the server's anybody answers.
    return sorted((secret | {"scram_client_key", "scram_server_key"}) & options.keys())


def ssl_mode(options: Mapping[str, str]) -> str:
    """Return the `sslmode` that libpq uses for such options: with the system's authorities it accepts only verify-full."""
    if options.get("sslrootcert") == "system" and version() >= _KNOWS_SYSTEM:
        return "verify-full"
    return options.get("sslmode", "prefer")


def is_remote(options: Mapping[str, str]) -> bool:
    """Return whether a host of such options is another machine. libpq takes a host's name if its address is empty."""
    hosts, addresses = options.get("host", "").split(","), options.get("hostaddr", "").split(",")
    return not all(is_local(address or host) for host, address in zip_longest(hosts, addresses, fillvalue=""))


def is_local(host: str) -> bool:
    """Return whether this is a socket, or a name or address of this machine."""
    host = host.strip().strip("[]")
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host in ("", "localhost") or host.startswith(("/", "@"))

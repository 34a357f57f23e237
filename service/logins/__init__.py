"""Logins that a provider grants for a limited time, `[kafka] login` and `[postgres] login`.

- kafka.py, options.py: tokens for Kafka's clients, and the options by which a client takes them.
- postgres.py: a password for each connection.
- aws.py, azure.py, google.py: the plugins of this project.

A plugin is one function. It asks its provider at each call, with the identity that the machine has there (a role, a managed identity, a
service account), and may raise anything:

    spark_outbox.kafka_login        (bootstrap_servers: str) -> (token, expires_at[, principal]); expires_at in seconds since 1970
    spark_outbox.postgres_login     (host: str, port: int, user: str) -> password

Plugins are entry points of these groups. Those of this project need no entry point, so that executors, which get its code without its
distribution, have them as well; an entry point of the same name wins.
"""

from collections.abc import Callable, Mapping
from importlib.metadata import entry_points
from typing import Any

from service.errors import SettingsError


def plugin(section: str, name: str, own: Mapping[str, Callable[..., Any]]) -> Callable[..., Any]:
    """Return the plugin of `[section] login = name`. `own`: the plugins of this project. Raises SettingsError."""
    group = f"spark_outbox.{section}_login"
    found = {each.name: each for each in entry_points(group=group)}
    if name in found:
        try:
            loaded: Callable[..., Any] = found[name].load()
        except (ImportError, AttributeError) as error:
            raise SettingsError(
                f"[{section}] login = {name!r}: its plugin {found[name].value} cannot be loaded: {error}"
            ) from error
        return loaded
    if name in own:
        return own[name]
    known = ", ".join(map(repr, sorted({*own, *found})))
    raise SettingsError(
        f"[{section}] login = {name!r} (OUTBOX_{section.upper()}__LOGIN) is unknown. It is one of {known}, or an entry point of the group "
        f"{group} that an installed package has"
    )


def missing(extra: str, error: ImportError) -> SettingsError:
    """Return the error that names the package to install."""
    return SettingsError(f'this login needs {error.name or error}: pip install "spark-outbox[{extra}]"')


def shown(error: BaseException) -> str:
    """Return the first line of what a plugin raised."""
    return f"{type(error).__name__}: {error}".splitlines()[0][:_SHOWN_CHARS]


_SHOWN_CHARS = 300

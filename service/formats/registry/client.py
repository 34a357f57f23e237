"""Makes confluent-kafka's client of a registry, and checks its credentials."""

import json
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from service.formats.registry.answers import read_bounded, registry_errors
from service.formats.writer import RegistryAwayError, RegistryRefusedError

if TYPE_CHECKING:
    from confluent_kafka.schema_registry import SchemaRegistryClient

_CHECK_S = 2.0
"""Seconds that a start waits for a registry."""
_NO_LOGIN = frozenset({401, 407})


def registry_client(options: Mapping[str, Any]) -> "SchemaRegistryClient":
    """Make a client.

    Raises RegistryRefusedError if its options are wrong, ModuleNotFoundError if the extra is not installed.
    """
    try:
        from confluent_kafka.schema_registry import SchemaRegistryClient
    except ImportError as error:
        raise ModuleNotFoundError(
            f"{error}: schemas need the extra `schema-registry` (pip install 'spark-outbox[schema-registry]'), on the executors, too"
        ) from error
    try:
        return SchemaRegistryClient(dict(options))
    except (ValueError, TypeError, OSError) as error:
        # The client's messages quote the url and the names of options, never their values.
        raise RegistryRefusedError(
            f"no client of the schema registry can be made with these options: {type(error).__name__}: {error}. Correct [schema_registry]"
        ) from error


def configuration(options: Mapping[str, Any]) -> str:
    """Return a client's configuration: its options, and the state of the certificates and keys that they name, which a client reads only
    once.
    """
    files = {name: _state(str(file)) for name, file in options.items() if name.endswith(".location")}
    return json.dumps([dict(options), files], sort_keys=True)


def _state(file: str) -> list[int]:
    try:
        found = os.stat(file)
    except OSError:
        return []
    return [found.st_ino, found.st_size, found.st_mtime_ns]


def check_login(client: "SchemaRegistryClient", where: str) -> None:
    """Request an id that no schema has, with a `client` used for nothing else. Only refused credentials are an error: later requests report
    their own errors, and a role may lack the right to this id. `where`: the registry's url.

    Raises RegistryRefusedError.
    """
    client._rest_client.max_retries = 0
    client._rest_client.session.timeout = _CHECK_S
    client._rest_client.session.event_hooks["response"] = [read_bounded]
    try:
        with registry_errors(where):
            client._rest_client.get("schemas/ids/0")
    except (RegistryAwayError, RecursionError):
        pass
    except RegistryRefusedError as error:
        if getattr(error.__cause__, "http_status_code", None) in _NO_LOGIN:
            raise

"""Azure: Entra's tokens, by azure-identity's credential chain."""

import functools
from typing import Any

from service.logins import missing

_POSTGRES = "https://ossrdbms-aad.database.windows.net/.default"


def kafka_token(bootstrap_servers: str) -> tuple[str, float]:
    """Return a token for Event Hubs, valid for one namespace. Raises SettingsError without its package."""
    namespace = bootstrap_servers.split(",")[0].strip().rpartition(":")[0]
    found = _credential().get_token(f"https://{namespace}/.default")
    return found.token, found.expires_on


def postgres_password(host: str, port: int, user: str) -> str:
    """Return a password for Azure Database for PostgreSQL. Raises SettingsError without its package."""
    token: str = _credential().get_token(_POSTGRES).token
    return token


@functools.cache
def _credential() -> Any:
    # One credential for all: it caches tokens until shortly before they expire.
    try:
        from azure.identity import DefaultAzureCredential
    except ImportError as error:
        raise missing("azure", error) from error
    return DefaultAzureCredential()

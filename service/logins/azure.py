"""Azure: tokens of Entra, by azure-identity's chain of credentials."""

import functools
from typing import Any

from service.logins import missing

_POSTGRES = "https://ossrdbms-aad.database.windows.net/.default"


def kafka_token(bootstrap_servers: str) -> tuple[str, float]:
    """For Event Hubs, whose tokens are those of one namespace. Raises SettingsError without its package."""
    namespace = bootstrap_servers.split(",")[0].strip().rpartition(":")[0]
    found = _credential().get_token(f"https://{namespace}/.default")
    return found.token, found.expires_on


def postgres_password(host: str, port: int, user: str) -> str:
    """For Azure Database for PostgreSQL. Raises SettingsError without its package."""
    token: str = _credential().get_token(_POSTGRES).token
    return token


@functools.cache
def _credential() -> Any:
    # It keeps tokens until shortly before their end: one for all.
    try:
        from azure.identity import DefaultAzureCredential
    except ImportError as error:
        raise missing("azure", error) from error
    return DefaultAzureCredential()

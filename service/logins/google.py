"""Google Cloud: access tokens, by the application default credentials."""

import base64
import json
import time
from datetime import UTC
from typing import Any

from service.logins import missing

_KAFKA = "https://www.googleapis.com/auth/cloud-platform"
_POSTGRES = "https://www.googleapis.com/auth/sqlservice.login"


def kafka_token(bootstrap_servers: str) -> tuple[str, float]:
    """Return a token for Managed Service for Apache Kafka: an access token as a JWT. Raises SettingsError without its package."""
    found = _refreshed(_KAFKA)
    expires_at = found.expiry.replace(tzinfo=UTC).timestamp()
    claims = {
        "exp": int(expires_at),
        "iat": int(time.time()),
        "iss": "Google",
        "scope": "kafka",
        "sub": getattr(found, "service_account_email", "") or getattr(found, "account", ""),
    }
    parts = (json.dumps({"typ": "JWT", "alg": "GOOG_OAUTH2_TOKEN"}), json.dumps(claims), found.token)
    return ".".join(
        base64.urlsafe_b64encode(each.encode()).decode().rstrip("=") for each in parts
    ), expires_at


def postgres_password(host: str, port: int, user: str) -> str:
    """Return a password for Cloud SQL. Raises SettingsError without its package."""
    token: str = _refreshed(_POSTGRES).token
    return token


def _refreshed(scope: str) -> Any:
    try:
        from google.auth import default
        from google.auth.transport.requests import Request
    except ImportError as error:
        raise missing("google", error) from error
    credentials, _ = default(scopes=[scope])
    credentials.refresh(Request())
    return credentials

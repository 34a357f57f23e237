"""AWS: URLs signed with botocore's credential chain serve as Kafka token and Postgres password."""

import os
import re
import threading

from service.logins import missing

_REGION = re.compile(r"\.([a-z]{2}(?:-[a-z]+)+-\d+)\.(?:[a-z]+\.)?amazonaws\.com")

_making = threading.Lock()


def region_of(hosts: str) -> str:
    """Return the region in the host names, else that of AWS_REGION or AWS_DEFAULT_REGION. Raises ValueError."""
    found = _REGION.search(hosts)
    region = found[1] if found else os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")
    if not region:
        raise ValueError(f"no region is in the name of {hosts}: set AWS_REGION")
    return region


def kafka_token(bootstrap_servers: str) -> tuple[str, float]:
    """Return a token for MSK and its expiry. Raises SettingsError without its package."""
    try:
        from aws_msk_iam_sasl_signer import MSKAuthTokenProvider
    except ImportError as error:
        raise missing("aws", error) from error
    token, expires_ms = MSKAuthTokenProvider.generate_auth_token(region_of(bootstrap_servers))
    return token, expires_ms / 1000


def postgres_password(host: str, port: int, user: str) -> str:
    """Return a password for RDS or Aurora, valid for 15 minutes. Raises SettingsError without its package."""
    try:
        import boto3
    except ImportError as error:
        raise missing("aws", error) from error
    region = region_of(host)
    with _making:  # boto3's default session is not thread-safe
        client = boto3.client("rds", region_name=region)
    password: str = client.generate_db_auth_token(DBHostname=host, Port=port, DBUsername=user, Region=region)
    return password

"""librdkafka's options for TLS and SASL in the words of Kafka's Java client, so that one section serves both clients."""

from collections.abc import Mapping
from pathlib import Path

_SAME = (
    "security.protocol",
    "sasl.mechanism",
    "ssl.endpoint.identification.algorithm",
    "client.id",
    "client.rack",
)
_PEM = {
    "ssl.ca.location": "ssl.ca.pem",
    "ssl.certificate.location": "ssl.certificate.pem",
    "ssl.key.location": "ssl.key.pem",
}
_SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"
_PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
_OAUTHBEARER = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
_OIDC = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginCallbackHandler"


def java_options(options: Mapping[str, str | int | float | bool]) -> dict[str, str]:
    """Return those of librdkafka's options that the Java client has, too; for OAUTHBEARER, only the method `oidc`.

    Raises OSError or ValueError for a file that cannot be read.
    """
    given = {name: str(value) for name, value in with_certificates(options).items()}
    if "sasl.mechanisms" in given:  # librdkafka's older name
        given.setdefault("sasl.mechanism", given["sasl.mechanisms"])
    found = {name: given[name] for name in _SAME if name in given}
    found = {name: value.upper() if name == "security.protocol" else value for name, value in found.items()}
    if found.get("ssl.endpoint.identification.algorithm") == "none":
        found["ssl.endpoint.identification.algorithm"] = ""
    mechanism = given.get("sasl.mechanism", "")
    if (
        "sasl.username" in given
        and "sasl.password" in given
        and mechanism in ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
    ):
        module = _PLAIN if mechanism == "PLAIN" else _SCRAM
        user, password = _quoted(given["sasl.username"]), _quoted(given["sasl.password"])
        found["sasl.jaas.config"] = f"{module} required username={user} password={password};"
    if mechanism == "OAUTHBEARER" and given.get("sasl.oauthbearer.method") == "oidc":
        found |= _oidc(given)
    if "ssl.ca.pem" in given:
        found |= {"ssl.truststore.type": "PEM", "ssl.truststore.certificates": given["ssl.ca.pem"]}
    if "ssl.certificate.pem" in given and "ssl.key.pem" in given:
        found |= {
            "ssl.keystore.type": "PEM",
            "ssl.keystore.certificate.chain": given["ssl.certificate.pem"],
            "ssl.keystore.key": given["ssl.key.pem"],
        }
        if "ssl.key.password" in given:
            found["ssl.key.password"] = given["ssl.key.password"]
    return found


def with_certificates(options: Mapping[str, str | int | float | bool]) -> dict[str, str | int | float | bool]:
    """Return librdkafka's options with the text of PEM files instead of their paths, so that they hold on machines without these files.

    Raises OSError or ValueError for a file that cannot be read.
    """
    found = dict(options)
    for location, text in _PEM.items():
        path = Path(str(found.get(location, "probe")))
        # librdkafka also takes a folder of certificates, and `probe` for the system's.
        if path.name != "probe" and not path.is_dir():
            del found[location]
            found[text] = path.read_text("utf-8")
    return found


def _oidc(given: Mapping[str, str]) -> dict[str, str]:
    """Return the client credentials for fetching a token."""
    found = {"sasl.login.callback.handler.class": _OIDC}
    if "sasl.oauthbearer.token.endpoint.url" in given:
        found["sasl.oauthbearer.token.endpoint.url"] = given["sasl.oauthbearer.token.endpoint.url"]
    names = {"clientId": "client.id", "clientSecret": "client.secret", "scope": "scope"}
    options = [
        f"{name}={_quoted(given[option])}"
        for name, option in ((name, f"sasl.oauthbearer.{ours}") for name, ours in names.items())
        if option in given
    ]
    return found | {"sasl.jaas.config": " ".join([_OAUTHBEARER, "required", *options]) + ";"}


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'

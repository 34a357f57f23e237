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
_SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"
_PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"


def java_options(options: Mapping[str, str | int | float | bool]) -> dict[str, str]:
    """Return what of librdkafka's options the Java client has, too. Certificates are PEM files; OAUTHBEARER needs [kafka.java_options].

    Raises OSError or ValueError for a file that cannot be read.
    """
    given = {name: str(value) for name, value in options.items()}
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
    if "ssl.ca.location" in given:
        found |= {"ssl.truststore.type": "PEM", "ssl.truststore.location": given["ssl.ca.location"]}
    certificate, key = given.get("ssl.certificate.location"), given.get("ssl.key.location")
    if certificate and key:
        found |= {
            "ssl.keystore.type": "PEM",
            "ssl.keystore.certificate.chain": Path(certificate).read_text("utf-8"),
            "ssl.keystore.key": Path(key).read_text("utf-8"),
        }
        if "ssl.key.password" in given:
            found["ssl.key.password"] = given["ssl.key.password"]
    return found


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'

"""How a client's options hold `[kafka] login`: as `sasl.oauthbearer.config`, which librdkafka passes to the token callback unread."""

from collections.abc import Mapping

from service.errors import SettingsError

_CONFIG = "sasl.oauthbearer.config"
_PREFIX = "spark-outbox-login="


def with_login(
    login: str, options: Mapping[str, str | int | float | bool]
) -> dict[str, str | int | float | bool]:
    """Return a client's options with the login. Raises SettingsError for options that contradict it."""
    if others := sorted(name for name in options if name.startswith("sasl.")):
        raise SettingsError(
            f"[kafka] login = {login!r} (OUTBOX_KAFKA__LOGIN) sets {others[0]} itself: remove one of the two"
        )
    protocol = str(options.get("security.protocol", "SASL_SSL"))
    if protocol.upper() != "SASL_SSL":
        raise SettingsError(
            f"[kafka.options] security.protocol = {protocol!r}: with [kafka] login it is SASL_SSL, for its tokens are passwords. Remove it"
        )
    return {
        **options,
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "OAUTHBEARER",
        _CONFIG: f"{_PREFIX}{login}",
    }


def named_login(options: Mapping[str, object]) -> str | None:
    """Return the login that a client's options name, or None."""
    config = str(options.get(_CONFIG, ""))
    return config.removeprefix(_PREFIX) if config.startswith(_PREFIX) else None

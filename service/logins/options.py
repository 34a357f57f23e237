"""How a client's options hold `[kafka] login`: as `sasl.oauthbearer.config`, which librdkafka passes to the token callback unread."""

from collections.abc import Mapping

from service.errors import SettingsError

_CONFIG = "sasl.oauthbearer.config"
_PREFIX = "spark-outbox-login="
_VERIFYING = ("enable.ssl.certificate.verification", "ssl.endpoint.identification.algorithm")
_NO = ("", "none", "false", "f", "0")


def with_login(
    login: str, options: Mapping[str, str | int | float | bool]
) -> dict[str, str | int | float | bool]:
    """Return a client's options with the login. Raises SettingsError for options that contradict it."""
    if others := sorted(name for name in options if name.startswith("sasl.")):
        raise SettingsError(
            f"[kafka] login = {login!r} (OUTBOX_KAFKA__LOGIN) sets {others[0]} itself: remove one of the two"
        )
    require_protected(options, "[kafka.options]")
    return {
        **options,
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "OAUTHBEARER",
        _CONFIG: f"{_PREFIX}{login}",
    }


def require_protected(options: Mapping[str, object], section: str) -> None:
    """Raise SettingsError if options of a client would tell a login's token to somebody else than the broker."""
    protocol = str(options.get("security.protocol", "SASL_SSL"))
    if protocol.upper() != "SASL_SSL":
        raise SettingsError(
            f"{section} security.protocol = {protocol!r}: with [kafka] login it is SASL_SSL, for its tokens are passwords. Remove it"
        )
    if (off := unverified_by(options)) is not None:
        raise SettingsError(
            f"{section} {off} = {options[off]!r}: with [kafka] login the broker must be verified, or an impostor gets a token. "
            "Remove it, and name the broker's authority in ssl.ca.location if it is not one of the system's"
        )


def unverified_by(options: Mapping[str, object]) -> str | None:
    """Return the option by which a client does not verify the broker; None: it does."""
    # librdkafka skips spaces before a value.
    return next((name for name in _VERIFYING if str(options.get(name, "on")).strip().lower() in _NO), None)


def named_login(options: Mapping[str, object]) -> str | None:
    """Return the login that a client's options name, or None."""
    config = str(options.get(_CONFIG, ""))
    return config.removeprefix(_PREFIX) if config.startswith(_PREFIX) else None

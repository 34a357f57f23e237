"""How an output's row stores the values of headers, which are bytes in Kafka: as text if possible, else `{"base64": …}`, or null."""

import base64


def stored(value: bytes) -> str | dict[str, str]:
    """Return the stored form of a value. A text with a NUL is stored as base64, because Postgres' jsonb has no NUL."""
    try:
        text = value.decode()
    except UnicodeDecodeError:
        text = "\0"
    return text if "\0" not in text else {"base64": base64.b64encode(value).decode()}


def read(value: object) -> bytes | None:
    """Return the bytes of a stored value, None for null. Raises ValueError for anything else."""
    if value is None:
        return None
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, dict) and value.keys() == {"base64"} and isinstance(value["base64"], str):
        return base64.b64decode(value["base64"], validate=True)
    raise ValueError(f'a header value is neither text, {{"base64": …}} nor null but a {type(value).__name__}')

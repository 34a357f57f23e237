"""Classifies a registry's answers: a schema, a verdict on one, an outage or a refusal. No answer is read without bounds."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from service.formats.writer import RegistryAwayError, RegistryRefusedError

if TYPE_CHECKING:
    from confluent_kafka.schema_registry import Schema
    from confluent_kafka.schema_registry.error import SchemaRegistryError

MAX_ID = 2**31 - 1
"""The greatest id of a schema, and the greatest version of a subject."""
MAX_CHARS = 8 << 20
"""Characters of a schema with its references."""
MAX_BODY = 2 * MAX_CHARS
"""Bytes of an answer, unpacked: JSON escapes a character as two."""
_LONGEST_BODY_S = 30.0
"""Seconds from an answer's first to its last byte: the client's own timeout limits each piece."""
_MOST_QUOTED = 2_000
"""Characters of a registry's message in an error."""
_VERDICTS = frozenset({400, 404, 409, 422})
"""Statuses of a registry's answers about a schema. Proxies and other servers use them, too, but without a registry's codes."""
_REFUSALS = frozenset({401, 403, 407})
_PASSING = frozenset({408, 425, 429})


class SchemaTooLargeError(RegistryRefusedError):
    """An answer was cut off: it has more bytes than any usable schema."""


class _OversizeError(ValueError):
    """An answer is longer than `MAX_BODY`."""


def read_bounded(response: Any) -> None:
    """Read an answer with bounds. The client has none: few bytes may unpack to gigabytes, and each byte restarts its timeout."""
    import httpx2

    body, until = bytearray(), time.monotonic() + _LONGEST_BODY_S
    for piece in response.iter_bytes():
        body += piece
        if len(body) > MAX_BODY:
            raise _OversizeError(f"an answer of over {MAX_BODY} bytes")
        if time.monotonic() > until:
            raise httpx2.ReadTimeout(f"not read within {_LONGEST_BODY_S:g} s", request=response.request)
    response._content = bytes(body)


def checked(answer: "Schema") -> "Schema":
    """Raise TypeError if the answer is not a schema: the client fills in fields that another server's JSON lacks."""
    names = [name for each in answer.references or () for name in (each.name, each.subject)]
    texts = all(isinstance(each, str | None) for each in (*names, answer.schema_type))
    if not isinstance(answer.schema_str, str) or not texts:
        raise TypeError("it has no schema")
    return answer


def is_verdict(error: "SchemaRegistryError") -> bool:
    """Return whether an error is the registry's answer about one schema. A registry's code is the status, or the status and two more
    digits. A 404 whose code is the status may also come from a server without this API.
    """
    status, code = error.http_status_code, error.error_code
    if status not in _VERDICTS or not isinstance(code, int):
        return False
    return code // 100 == status or (code == status and status != 404)


def is_of_the_format(error: "SchemaRegistryError") -> bool:
    """Return whether the registry may still give the schema in another format."""
    return error.http_status_code not in _REFUSALS | _PASSING


def quoted(error: "SchemaRegistryError") -> str:
    """Return status, code and message of an answer, for people, on one line."""
    message = " ".join(str(error.error_message).split())[:_MOST_QUOTED]
    return f"HTTP {error.http_status_code}, code {error.error_code}: {message}"


@contextmanager
def registry_errors(where: str) -> Iterator[None]:
    """Distinguish a registry that is away from a registry that refuses. Both errors quote its answer. `where`: its url.

    Raises RegistryAwayError, RegistryRefusedError.
    """
    import httpx2
    from confluent_kafka.schema_registry.error import OAuthTokenError, SchemaRegistryError

    try:
        yield
    except SchemaRegistryError as error:
        text = f"the schema registry at {where} answers {quoted(error)}"
        if error.http_status_code >= 500 or error.http_status_code in _PASSING:
            raise RegistryAwayError(text) from error
        raise RegistryRefusedError(text) from error
    except httpx2.RequestError as error:  # an error of the transport, or a body that contradicts its headers
        raise RegistryAwayError(
            f"the schema registry at {where} does not answer: {type(error).__name__}: {error}"
        ) from error
    except OAuthTokenError as error:
        raise RegistryAwayError(f"no token for the schema registry at {where}: {error.message}") from error
    except _OversizeError as error:
        raise SchemaTooLargeError(f"the schema registry at {where} gives {error}") from error
    except ValueError as error:  # an answer that is not JSON
        raise RegistryRefusedError(
            f"what answers at {where} is no schema registry: {type(error).__name__}: {error}"
        ) from error

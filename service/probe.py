"""`python -m service.probe URL`: a health check for containers without curl. Prints the answer; exits 0 on status 200, else 1.

Imports only the standard library, so that it starts quickly.
"""

import sys
import time
from http.client import HTTPException
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.request import ProxyHandler, build_opener

from service.printable import printable

_TIMEOUT_S = 5.0
_MOST_BYTES = 1 << 20


def probe(url: str) -> tuple[int, str]:
    """Return the exit code and what to print. Ignores proxies of the environment."""
    try:
        try:
            with build_opener(ProxyHandler({})).open(url, timeout=_TIMEOUT_S) as answer:
                status, body = answer.status, _body(answer)
        except HTTPError as error:
            status, body = error.code, _body(error)
    except (URLError, OSError, ValueError, HTTPException) as error:
        return 1, f"{url}: {getattr(error, 'reason', None) or error}"
    return int(status != 200), body.decode("utf-8", "replace").strip()


def _body(answer: Any) -> bytes:
    """Return the whole answer. Raises ValueError if it is too large or does not end: anything may answer at that URL."""
    body, until = b"", time.monotonic() + _TIMEOUT_S
    while piece := answer.read1(_MOST_BYTES):
        body += piece
        if len(body) > _MOST_BYTES:
            raise ValueError(f"the answer has over {_MOST_BYTES} bytes")
        if time.monotonic() > until:
            raise ValueError(f"no whole answer within {_TIMEOUT_S:g} s")
    if answer.length:
        raise ValueError(f"the answer was cut off {answer.length} bytes before its end")
    return body


def main(arguments: list[str]) -> int:
    """Probe the URL of the command line."""
    if len(arguments) != 1:
        print("usage: python -m service.probe URL", file=sys.stderr)
        return 2
    code, text = probe(arguments[0])
    print(printable(text, keep="\n\t"))
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

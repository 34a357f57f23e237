"""How every command line of this project ends: an explained error is its message and its exit code, never a traceback."""

import sys
from collections.abc import Callable

from service.errors import OutboxError


def run_command(app: Callable[[], object], name: str) -> None:
    """Run `app`; an OutboxError goes to stderr as it is and decides the exit code."""
    try:
        app()
    except OutboxError as error:
        sys.stderr.write(f"{name}: {error}\n")
        sys.exit(error.exit_code)

"""Lines that are seen while a fixture of minutes works."""

import sys
from collections.abc import Callable
from contextlib import nullcontext

import pytest


def line_writer(request: pytest.FixtureRequest) -> Callable[[str], None]:
    """Return what writes a line to the terminal, past pytest's capture."""
    capture = request.config.pluginmanager.getplugin("capturemanager")

    def say(line: str) -> None:
        with nullcontext() if capture is None else capture.global_and_fixture_disabled():
            print(f"\n{line}", file=sys.stderr, flush=True)

    return say

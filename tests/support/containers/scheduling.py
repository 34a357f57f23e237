"""How workers share the files: units first, each file to one worker, and all that need the container engine to the same one."""

import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadFileScheduling

_ON_THE_ENGINE = ("tests/containers/",)


class OneEngineScheduling(LoadFileScheduling):  # type: ignore[misc] # xdist has no types
    """`--dist loadfile` with one change: a session fixture exists once a worker, and an engine is too dear to be started twice."""

    def _split_scope(self, nodeid: str) -> str:
        return _ON_THE_ENGINE[0] if nodeid.startswith(_ON_THE_ENGINE) else super()._split_scope(nodeid)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> OneEngineScheduling | None:
    """Take `--dist loadfile` over; leave the others alone."""
    return OneEngineScheduling(config, log) if config.getoption("dist") == "loadfile" else None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put units first: they find most mistakes, and at the end their longest file would keep one worker busy when the others are idle."""
    items.sort(key=lambda item: not item.nodeid.startswith("tests/unit/"))

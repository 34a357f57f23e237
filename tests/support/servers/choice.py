"""OUTBOX_TEST_SERVERS: which servers the tests' fixtures `postgres` and `kafka` are. OUTBOX_TEST_CELL: what `make test-matrix` runs."""

from collections.abc import Mapping

SERVERS_VARIABLE = "OUTBOX_TEST_SERVERS"
CELL_VARIABLE = "OUTBOX_TEST_CELL"


def containers_are_wanted(environment: Mapping[str, str]) -> bool:
    """Whether the fixtures are to be containers. Raises ValueError for a value that is neither devstack nor containers."""
    wanted = environment.get(SERVERS_VARIABLE) or "devstack"
    if wanted not in ("devstack", "containers"):
        raise ValueError(
            f"{SERVERS_VARIABLE} is {wanted!r}; it can be 'devstack' (the default) or 'containers'"
        )
    return wanted == "containers"

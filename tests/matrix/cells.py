"""What `make test-matrix` runs: for each version that is not the one of `make test`, a part of the tests that it could fail."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from tests.matrix import installations

# Each first proves that the run is on the version that it is about.
_ITSELF = "tests/matrix/test_cell.py"
# The migrations, each query and view, the writer's statements.
_POSTGRES = (
    _ITSELF,
    "tests/integration/db/test_queries.py",
    "tests/integration/db/test_migrations.py",
    "tests/integration/db/audit/test_event_view.py",
    "tests/integration/db/audit/test_views.py",
    "tests/integration/spark_job/sink/batch",
)
# Transactions, fencing, open transactions, what the command asks of a cluster.
_KAFKA = (
    _ITSELF,
    "tests/integration/publisher/delivery/test_delivery.py",
    "tests/integration/publisher/kafka/test_open_transactions.py",
    "tests/integration/publisher/commands/test_check_cluster.py",
)
# The broker, and Spark: its class archive, what is called by reflection, a whole job cut at any place.
_JAVA = (
    _ITSELF,
    "tests/integration/publisher/kafka/test_open_transactions.py",
    "tests/integration/spark_job/test_arrow_map.py",
    "tests/integration/spark_job/input/test_login.py",
    "tests/acceptance/exactly_once/test_batch_cuts.py",
    "tests/acceptance/failures/test_failures.py",
)
# What rests on compiled packages (pyarrow, numpy, pydantic, Kafka's client), and the words of the contract.
_PYTHON = (
    _ITSELF,
    "tests/unit/contract",
    "tests/unit/service/settings",
    "tests/unit/service/kafka",
    "tests/unit/publisher/protocol",
    "tests/unit/spark_job/assembly",
)


@dataclass(frozen=True, slots=True)
class Cell:
    """One version of one thing."""

    axis: str
    version: str
    part: tuple[str, ...]
    """What pytest runs."""
    environment: Callable[[], dict[str, str]] = dict
    """Variables that choose the version. Raises NotHereError."""
    python: Callable[[], Path] | None = None
    """The interpreter; None: the run's own. Raises NotHereError."""

    @property
    def name(self) -> str:
        """As `make test-matrix CELLS=` takes it."""
        return f"{self.axis}-{self.version}".lower()


CELLS = (
    Cell("Postgres", "15", _POSTGRES, partial(installations.packaged_postgres, "15")),
    Cell("Postgres", "16", _POSTGRES, installations.postgres_of_the_wheel),
    Cell("Postgres", "17", _POSTGRES, partial(installations.postgres_of_debian_13, "17")),
    Cell("Kafka", "4.2.2", _KAFKA, partial(installations.kafka, "4.2.2")),
    Cell("Python", "3.12", _PYTHON, python=partial(installations.python, "3.12")),
    Cell("Python", "3.13", _PYTHON, python=partial(installations.python, "3.13")),
    Cell("Java", "21", _JAVA, partial(installations.java, "21")),
)

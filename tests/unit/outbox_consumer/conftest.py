"""A Kafka of lists and a database of SQLite."""

from pathlib import Path

import pytest

from tests.support.consumer.effects import Database
from tests.support.consumer.group import Broker


@pytest.fixture
def broker() -> Broker:
    """Topic `orders` with two partitions."""
    return Broker(orders=2)


@pytest.fixture
def database(tmp_path: Path) -> Database:
    """The consumer's own."""
    return Database(tmp_path / "consumer.db")

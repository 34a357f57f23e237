"""A filter never names more letters than its fields say, whichever command takes it."""

from dataclasses import fields

import pytest

from spark_job.dead_letters.store import Filter
from tests.support.query_files import QueryFile


@pytest.mark.parametrize("name", ["list", "count", "to_retry", "to_discard"])
def test_every_statement_applies_every_field_of_a_filter(name: str) -> None:
    statement = QueryFile("spark_job", "letters").load()[name]
    assert [field.name for field in fields(Filter) if f"%({field.name})s" not in statement] == []

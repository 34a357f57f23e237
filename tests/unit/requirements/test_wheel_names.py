"""What the wheel's build rewrites, and what it leaves (hatch_build.py)."""

import pytest

from hatch_build import rewritten

MODULES = frozenset({"publisher.commands", "publisher.commands.run", "service.errors", "spark_job.spark"})


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("from service.errors import A", "from spark_outbox.service.errors import A"),
        ("from db import (\n    a,\n)", "from spark_outbox.db import (\n    a,\n)"),
        (
            "def f():\n    from publisher import relay",
            "def f():\n    from spark_outbox.publisher import relay",
        ),
        ("import contract", "from spark_outbox import contract"),
        (
            'x = "ö"; y = "publisher.commands.run:run"',
            'x = "ö"; y = "spark_outbox.publisher.commands.run:run"',
        ),
        ('queries("publisher", "rows")', 'queries("spark_outbox.publisher", "rows")'),
        ('files("db") / "schema.sql"', 'files("spark_outbox.db") / "schema.sql"'),
    ],
)
def test_what_names_a_module_is_rewritten(before: str, after: str) -> None:
    assert rewritten(before, MODULES) == after


@pytest.mark.parametrize(
    "source",
    [
        "from . import service",
        "from spark_job.api import Session",
        "from services.a import b",
        "import publishers",
        'connect(settings, "publisher")',
        '{"service": 1}',
        'attribute = "service.name"',
        'files("spark_job.spark")',
        '"see service.errors"',
    ],
)
def test_anything_else_is_left(source: str) -> None:
    assert rewritten(source, MODULES) == source


@pytest.mark.parametrize(
    "source",
    ["import service.errors", "import os, service", "import service as s", 'files("d" "b")'],
)
def test_what_cannot_be_rewritten_ends_the_build(source: str) -> None:
    with pytest.raises(ValueError, match="the wheel renames it"):
        rewritten(source, MODULES)

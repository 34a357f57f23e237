"""deploy/dbt/sources.yml has every audit view with every commented column."""

import re
from typing import Any

import yaml

from db.dbt_sources import sources
from tests.support.paths import ROOT

FILE = ROOT / "deploy" / "dbt" / "sources.yml"


def tables() -> dict[str, Any]:
    """{view: what the file says of it}."""
    (source,) = yaml.safe_load(FILE.read_text("utf-8"))["sources"]
    return {each["name"]: each for each in source["tables"]}


def test_the_file_is_what_the_comments_of_the_schema_generate() -> None:
    assert FILE.read_text("utf-8") == sources(), "run `make docs`"


def test_it_has_every_audit_view_with_every_column_comment() -> None:
    schema = (ROOT / "db" / "schema.sql").read_text("utf-8")
    assert sorted(tables()) == sorted(
        re.findall(r"^CREATE VIEW outbox\.(audit_\w+|output_lineage) AS$", schema, re.MULTILINE)
    )
    columns = [f"{view}.{column['name']}" for view, each in tables().items() for column in each["columns"]]
    assert columns == re.findall(
        r"^COMMENT ON COLUMN outbox\.((?:audit_\w+|output_lineage)\.\w+) IS ", schema, re.MULTILINE
    )


def test_a_comment_arrives_as_postgres_has_it() -> None:
    view = tables()["audit_ledger"]
    assert (
        view["description"] == "Breaks of the ledger: no rows when all is well. Ask by batch_id for a part."
    )
    (problem,) = [each for each in view["columns"] if each["name"] == "problem"]
    assert "its generation's former batch ended" in problem["description"]


def test_no_description_is_a_template() -> None:
    """Dbt renders descriptions with Jinja."""
    assert re.findall(r"\{\{|\{%|\{#", FILE.read_text("utf-8")) == []

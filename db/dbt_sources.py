"""Writes the audit views as sources of dbt, from the comments in schema.sql: `python -m db.dbt_sources > deploy/dbt/sources.yml`."""

import json
import re
from importlib.resources import files

_COMMENT = re.compile(
    r"^COMMENT ON (?:VIEW|COLUMN) outbox\.(audit_\w+|output_lineage)(?:\.(\w+))? IS '((?:[^']|'')*)';$",
    re.MULTILINE,
)

_HEAD = """# The audit views of an outbox (docs/audit.md) as sources of dbt. Its login needs the role outbox_auditor.
# Written by `python -m db.dbt_sources`; do not edit.
version: 2
sources:
  - name: outbox
    description: "Deliveries of a spark-outbox pipeline. Ask the larger views by key, batch or time, as their descriptions say."
    tables:
"""


def sources() -> str:
    """Return the file's text: each view with its columns, in order, with their comments."""
    lines: list[str] = []
    for view, column, escaped in _COMMENT.findall(files("db").joinpath("schema.sql").read_text("utf-8")):
        # A JSON text is valid YAML.
        description = "description: " + json.dumps(escaped.replace("''", "'"), ensure_ascii=False)
        if column:
            lines += [f"          - name: {column}", f"            {description}"]
        else:
            lines += [f"      - name: {view}", f"        {description}", "        columns:"]
    return _HEAD + "\n".join(lines) + "\n"


if __name__ == "__main__":
    print(sources(), end="")

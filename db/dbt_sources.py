"""The audit views as sources of dbt: `python -m db.dbt_sources > deploy/dbt/sources.yml`, from the comments in schema.sql."""

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
    """Return the file's text: each view and its columns with their comments, in their order."""
    lines: list[str] = []
    for view, column, escaped in _COMMENT.findall(files("db").joinpath("schema.sql").read_text("utf-8")):
        # A JSON text is one of YAML, too.
        description = "description: " + json.dumps(escaped.replace("''", "'"), ensure_ascii=False)
        if column:
            lines += [f"          - name: {column}", f"            {description}"]
        else:
            lines += [f"      - name: {view}", f"        {description}", "        columns:"]
    return _HEAD + "\n".join(lines) + "\n"


if __name__ == "__main__":
    print(sources(), end="")

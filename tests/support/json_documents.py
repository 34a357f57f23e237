"""What a command printed with `--json`."""

import json
import re
from typing import Any

_BEGINS = re.compile(r"^[\[{]", re.MULTILINE)


def json_document(output: str) -> Any:
    """Return the document in the output of a command that ran in this process: log lines of other threads may lie around it."""
    begin = _BEGINS.search(output)
    assert begin is not None, f"no document in {output!r}"
    return json.JSONDecoder().raw_decode(output, begin.start())[0]

"""The JSON files of a folder of results."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.suite.results import Spread, spread, values


@dataclass(frozen=True)
class Document:
    """One measurement."""

    name: str
    title: str
    content: Mapping[str, Any]
    """As benchmarks.suite.results writes it."""

    @property
    def labels(self) -> Mapping[str, str]:
        """{measure: name with unit}, those that no round has left out."""
        had = {measure for one in self.content["rounds"] for measure in one["measured"]}
        return {measure: label for measure, label in self.content["labels"].items() if measure in had}

    @property
    def contenders(self) -> list[str]:
        """In the order of their first round; ours first, because the ratios are to it."""
        found = list(dict.fromkeys(one["contender"] for one in self.content["rounds"]))
        return sorted(found, key=lambda name: not name.startswith("ours"))

    @property
    def points(self) -> list[str]:
        """In the order of their first round; numbers by size."""
        found = list(dict.fromkeys(one["point"] for one in self.content["rounds"]))
        return sorted(found, key=float) if all(map(_is_number, found)) else found

    def spread(self, contender: str, point: str, measure: str) -> Spread | None:
        """Of a measure over its rounds; None where there is none."""
        numbers = values(self.content, contender, point, measure)
        return spread(numbers) if numbers else None

    def all_of(self, what: str) -> list[Any]:
        """What the rounds say of themselves: `date`, `commit`, `command`, `machine`, `load_before`. Each once, in their order."""
        return list(
            dict.fromkeys(one[what] for one in self.content["rounds"] if one.get(what) not in (None, ""))
        )


def documents(folder: Path) -> dict[str, Document]:
    """Return {name: document} of each JSON file that has rounds. Raises ValueError for a file that is none of ours."""
    found = {}
    for path in sorted(folder.glob("*.json")):
        content = json.loads(path.read_text("utf-8"))
        if not isinstance(content.get("rounds"), list):
            raise ValueError(f"{path}: no rounds in it, so it is no result of a benchmark")
        if content["rounds"]:
            found[path.stem] = Document(path.stem, content["title"], content)
    return found


def _is_number(text: str) -> bool:
    return text.replace(".", "", 1).isdigit()

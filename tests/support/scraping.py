"""What a service's HTTP endpoint says, as Prometheus and a supervisor read it."""

import json
import urllib.error
import urllib.request
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from devstack.processes.port import ReservedPort

Samples = dict[tuple[str, tuple[tuple[str, str], ...]], float]
"""(name, sorted labels) -> value"""


# Kept to the end of the run: nobody else is given one of them between its choice and its use.
_reserved: list[ReservedPort] = []


def free_port() -> int:
    """A port that nobody listens on, and nobody else gets."""
    _reserved.append(ReservedPort())
    return _reserved[-1].number


def scrape(port: int) -> Samples:
    """Every sample of /metrics."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=30) as answer:
        text = answer.read().decode()
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def by_label(samples: Samples, name: str) -> dict[str, float]:
    """The samples of a name that has one label, by its value."""
    return {labels[0][1]: value for (found, labels), value in samples.items() if found == name}


def asked(port: int, page: str) -> tuple[int, dict[str, Any]]:
    """Status and answer of `healthz` or `readyz`; status 0 while nobody listens."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/{page}", timeout=30) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)
    except urllib.error.URLError:
        return 0, {}

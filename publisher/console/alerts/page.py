"""The page of the alerts: which hold now according to the tables, and what the runbook says about each."""

from collections.abc import Sequence
from typing import NamedTuple

from publisher.console.alerts.findings import SEEN_IN_PART, ConsoleFinding, findings, not_observable
from publisher.console.alerts.observed import NotReady, observe
from publisher.console.alerts.runbook import RunbookSection, sections
from publisher.console.reader import Connection, PageData
from service.settings import Settings

POSTGRES_UNREACHABLE = "OutboxPostgresUnreachable"


class AlertState(NamedTuple):
    """An alert. `state`: "holds", "does not hold" or "not seen here". `said`: the reason for the state."""

    section: RunbookSection
    state: str
    said: str


def read_alerts(connection: Connection, settings: Settings, not_ready: NotReady) -> PageData:
    """Return the page's data. Raises psycopg.Error."""
    seen, _ = observe(connection, settings, not_ready)
    found = findings(seen)
    return {"findings": found, "alerts": states(found, not_observable(seen))}


def without_postgres(said: str) -> PageData:
    """Return the page's data while Postgres does not answer: the error, and the runbook."""
    found = [ConsoleFinding("bad", said, POSTGRES_UNREACHABLE, "publisher status")]
    unknown = dict.fromkeys((each.alert for each in sections()), "Postgres does not answer.")
    return {"findings": found, "alerts": states(found, unknown)}


def states(found: Sequence[ConsoleFinding], unknown: dict[str, str]) -> list[AlertState]:
    """Return each alert of the runbook with its state, those that hold first."""
    said: dict[str, list[str]] = {}
    for each in found:
        said.setdefault(each.alert, []).append(each.text)
    judged = []
    for section in sections():
        if section.alert in said:
            judged.append(AlertState(section, "holds", "; ".join(said[section.alert])))
        elif section.alert in unknown:
            judged.append(AlertState(section, "not seen here", unknown[section.alert]))
        else:
            judged.append(AlertState(section, "does not hold", SEEN_IN_PART.get(section.alert, "")))
    return sorted(judged, key=lambda each: each.state != "holds")

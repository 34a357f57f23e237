"""What a publisher has made of an outbox: how far its lanes are, and whether each event came once."""

from collections import Counter, defaultdict

import psycopg

from publisher.status.publisher_status import PublisherStatus, read_status
from service.settings import Settings
from tests.support.outbox.batches import Outbox
from tests.support.processes.publishers import RelayThread
from tests.support.queries import query
from tests.support.waiting import wait_until
from tests.support.watching import Watcher


def assert_exactly_once(outbox: Outbox, watcher: Watcher) -> None:
    """Fail unless what was seen is what was written: none missing, none twice, same bytes, in order for each key."""
    wait_until(
        lambda: len(watcher.seen) >= len(outbox.written),
        f"{len(outbox.written)} events, saw {len(watcher.seen)}",
    )
    watcher.wait_until_all_read()
    seen = Counter((event.key, event.value, event.outbox_id) for event in watcher.seen)
    assert seen == Counter(outbox.written)
    wanted, found = defaultdict(list), defaultdict(list)
    for key, _, outbox_id in outbox.written:
        wanted[key].append(outbox_id)
    for event in watcher.seen:
        found[event.key].append(event.outbox_id)
    assert found == wanted


def deliver(settings: Settings) -> None:
    """Let a publisher of these settings deliver everything that is there."""
    dsn = settings.postgres.dsn.get_secret_value()
    with RelayThread(settings):
        wait_until(lambda: drained(dsn), lambda: f"the delivery of everything: {reasons(dsn)}")


def reasons(dsn: str) -> list[str]:
    """Why each lane stands still, as status shows it."""
    return [lane.stopped_reason or "" for lane in status_of(dsn).lanes]


def status_of(dsn: str) -> PublisherStatus:
    """What `publisher status` reads."""
    with psycopg.connect(dsn, autocommit=True, options="-c timezone=UTC") as connection:
        return read_status(connection)


def drained(dsn: str) -> bool:
    """Whether every lane is at the ledger's end."""
    lanes = status_of(dsn).lanes
    return bool(lanes) and all(lane.lag_batches == 0 and lane.cursor_key is None for lane in lanes)


def holders(dsn: str) -> dict[int, str]:
    """Lane of the newest epoch -> the process that holds it, those that are held."""
    return dict(
        query(
            dsn,
            "SELECT lane, lease_holder FROM outbox.lane WHERE epoch = (SELECT max(epoch) FROM outbox.lane)"
            " AND lease_until >= now()",
        )
    )


def spread(dsn: str) -> list[int]:
    """How many lanes of the newest epoch each process holds, ascending."""
    return sorted(Counter(holders(dsn).values()).values())

"""Raises the limit of file descriptors to the number that the lanes need. A process at the limit fails without naming the cause."""

import resource

import structlog

from service.errors import SettingsError

_log = structlog.get_logger()

# Counted with librdkafka 2.16: a client has 5 descriptors, and 3 for each broker that it is connected to. A lane has one client and one
# connection to Postgres. While a lane is being opened it has a second client: a consumer, or the producer that it had before.
# The sum leaves room for a second connection to Postgres, too.
_OF_CLIENT, _OF_BROKER = 5, 3
# The connections of the console and of the metrics port (their bounds are in their servers), and 100 more.
_OF_PROCESS = 400


def needed_descriptors(lanes: int, brokers: int) -> int:
    """Return how many descriptors a process needs that runs this many lanes."""
    return _OF_PROCESS + lanes * (2 + 2 * (_OF_CLIENT + _OF_BROKER * brokers))


def ensure_descriptors(lanes: int, brokers: int) -> None:
    """Increase this process' limit to the number that all the lanes need. Raises SettingsError if the system does not allow it."""
    needed = needed_descriptors(lanes, brokers)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= needed:
        return
    if hard != resource.RLIM_INFINITY and hard < needed:
        raise SettingsError(
            f"{lanes} lanes on {brokers} brokers need {needed} file descriptors, and this process may have {hard} (`ulimit -Hn`). Raise "
            "the limit (LimitNOFILE= of a systemd unit, --ulimit nofile= of a container), or deliver with fewer lanes (docs/lanes.md)"
        )
    resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))
    _log.info("descriptors_raised", before=soft, now=needed)

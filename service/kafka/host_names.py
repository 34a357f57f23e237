"""Whether the hosts that a setting names exist."""

import re
import socket
from collections.abc import Iterable

_PORT = re.compile(r":\d+$")


def hosts_of(bootstrap_servers: str) -> list[str]:
    """Return the hosts of a list of Kafka brokers, `[protocol://]host[:port],...`, as librdkafka reads it."""
    brokers = [broker.strip().rpartition("://")[2] for broker in bootstrap_servers.split(",")]
    return [_PORT.sub("", broker).strip("[]") for broker in brokers]


def none_exists(hosts: Iterable[str]) -> bool:
    """Return whether the name server answers that no host has an address; False without a host."""
    names = [host for host in hosts if host]
    return bool(names) and all(map(_has_no_address, names))


def _has_no_address(name: str) -> bool:
    try:
        socket.getaddrinfo(name, None)
    except socket.gaierror as error:
        return error.errno == socket.EAI_NONAME
    return False

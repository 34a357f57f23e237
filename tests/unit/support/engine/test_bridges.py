"""Each engine of ours has networks of its own."""

import ipaddress
import socket
from types import SimpleNamespace

import psutil
import pytest

from tests.support.engine import bridges


def test_no_two_slots_share_an_address() -> None:
    pools = [ipaddress.ip_network(bridges.pool(slot)) for slot in range(bridges.SLOTS)]
    assert not any(one.overlaps(other) for one in pools for other in pools if one is not other)


def test_only_bridges_with_an_address_of_the_slot_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def at(address: str, family: int = socket.AF_INET) -> list[SimpleNamespace]:
        return [SimpleNamespace(family=family, address=address)]

    interfaces = {
        "br-ours": at("198.18.64.1"),
        "br-of-another-slot": at("198.18.0.1"),
        "br-of-another-engine": at("172.18.0.1"),
        "br-without-ipv4": at("fe80::1", socket.AF_INET6),
        "eth0": at("198.18.64.2"),
    }
    monkeypatch.setattr(psutil, "net_if_addrs", lambda: interfaces)
    assert bridges.found(1) == ["br-ours"]

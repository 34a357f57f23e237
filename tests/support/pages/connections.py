"""Clients that connect and say nothing, and how many of them a server of this process has."""

import socket

import psutil


def silent_clients(port: int, count: int, address: str | None = None) -> list[socket.socket]:
    """Connect so many times. `address`: another one of loopback's to come from."""
    source = None if address is None else (address, 0)
    return [socket.create_connection(("127.0.0.1", port), source_address=source) for _ in range(count)]


def accepted(port: int) -> int:
    """How many connections this process has accepted at that port and not closed."""
    return sum(
        each.laddr.port == port and each.fd > 0 and bool(each.raddr)
        for each in psutil.Process().net_connections("tcp")
    )

"""The addresses of an engine's networks, and the removal of bridges that outlived it.

A bridge belongs to the host's network namespace, which the engine shares so that published ports are the host's. It
ends neither with the engine nor with its containers.
"""

import fcntl
import ipaddress
import socket
import struct
from contextlib import suppress

import psutil

# Set aside for benchmarks (RFC 2544): neither other engines nor anybody's network use it.
_ALL = ipaddress.ip_network("198.18.0.0/15")
SLOTS = 8
_PREFIX_OF_A_SLOT = 18
_IFREQ = "16sh22x"
_SIOCSIFFLAGS = 0x8914
_SIOCBRDELBR = 0x89A1


def pool(slot: int) -> str:
    """The addresses of the engine in this slot, as in 198.18.64.0/18. `slot`: 0 to SLOTS - 1."""
    return str(list(_ALL.subnets(new_prefix=_PREFIX_OF_A_SLOT))[slot])


def found(slot: int) -> list[str]:
    """The bridges with an address of this slot's."""
    addresses = ipaddress.ip_network(pool(slot))
    return [
        name
        for name, owned in psutil.net_if_addrs().items()
        if name.startswith("br-")
        and any(
            each.family == socket.AF_INET and ipaddress.ip_address(each.address) in addresses
            for each in owned
        )
    ]


def remove(slot: int) -> None:
    """Delete this slot's bridges. No engine may run in it."""
    for name in found(slot):
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as kernel, suppress(FileNotFoundError):
            # Flags 0: down, as a bridge must be.
            for request in (_SIOCSIFFLAGS, _SIOCBRDELBR):
                fcntl.ioctl(kernel, request, struct.pack(_IFREQ, name.encode(), 0))

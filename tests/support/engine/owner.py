"""Whose the things on an engine are, and the removal of what killed runs left there.

Each container, network, volume and image that a run makes for itself carries its owner as a label. Several machines,
containers and users may share one engine, and a process can be judged from its own PID namespace only: what belongs to
another one, or has a label of another form, is left alone.
"""

import os
import re
import socket
from dataclasses import dataclass
from pathlib import Path

from devstack.processes.process import ProcessIdentity, birth
from tests.support.engine.engine import Engine

OWNER_LABEL = "spark-outbox.owner"
_PID_NAMESPACE = Path("/proc/self/ns/pid")
_FORM = re.compile(r"([^/\s]+/\d+)/(\d+)@(\S+)")
# Kind -> where it has its labels, how it is listed and removed. In this order: the later ones are used by the earlier ones.
_KINDS = (
    ("container", ".Config.Labels", ("--all",), ("--force", "--volumes")),
    ("network", ".Labels", (), ()),
    ("volume", ".Labels", (), ()),
    ("image", ".Config.Labels", (), ("--force", "--no-prune")),
)


@dataclass(frozen=True)
class Owner:
    """A process and where its pid counts: `namespace` is HOSTNAME/INODE of its PID namespace."""

    namespace: str
    process: ProcessIdentity

    @classmethod
    def this(cls) -> "Owner":
        """Us."""
        pid = os.getpid()
        return cls(_namespace(), ProcessIdentity(pid, str(birth(pid))))

    @classmethod
    def read(cls, label: str) -> "Owner | None":
        """The owner that a label names; None where the label is not of our form."""
        found = _FORM.fullmatch(label)
        return cls(found[1], ProcessIdentity(int(found[2]), found[3])) if found else None

    def __str__(self) -> str:
        """The label's value."""
        return f"{self.namespace}/{self.process.pid}@{self.process.birth}"

    def is_gone(self) -> bool:
        """Whether it is known to be gone: it lived where we live, and lives no more."""
        return self.namespace == _namespace() and not self.process.is_alive()


def remove_leftovers(engine: Engine) -> None:
    """Remove what runs of this machine made and could not remove, because they were killed."""
    for kind, labels, listing, removal in _KINDS:
        listed = engine.run(
            kind, "ls", "--quiet", *listing, "--filter", f"label={OWNER_LABEL}"
        ).stdout.split()
        for each in dict.fromkeys(listed):
            form = f'{{{{index {labels} "{OWNER_LABEL}"}}}}'
            # Unchecked: another run may be removing the same at this moment.
            label = engine.run(kind, "inspect", "--format", form, each, check=False).stdout.strip()
            owner = Owner.read(label)
            if owner is not None and owner.is_gone():
                engine.run(kind, "rm", *removal, each, check=False)


def _namespace() -> str:
    inode = _PID_NAMESPACE.stat().st_ino if _PID_NAMESPACE.exists() else 0
    return f"{socket.gethostname()}/{inode}"

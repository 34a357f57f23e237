"""A Postgres with a tablespace on a disk of a few megabytes, which a table of the tests' own fills and its end empties.

The disk is a tmpfs that only the server sees: this file is also the program that mounts it in a mount namespace and then becomes the
server. An ordinary user may do that in a user namespace of its own; root needs none.

Usage: small_disk.py MEGABYTES FOLDER UID:GID COMMAND ...
"""

import ctypes
import os
import sys
from pathlib import Path

_CLONE_NEWNS, _CLONE_NEWUSER = 0x00020000, 0x10000000
_MS_REC, _MS_PRIVATE = 0x4000, 0x40000


def main() -> None:
    """Mount, drop root's privileges, become the command."""
    megabytes, folder, owner, *command = sys.argv[1:]
    user, group = map(int, owner.split(":"))
    libc = ctypes.CDLL(None, use_errno=True)

    def call(name: str, *arguments: bytes | int | None) -> None:
        if getattr(libc, name)(*arguments) != 0:
            number = ctypes.get_errno()
            sys.exit(
                f"{name}: {os.strerror(number)}. The disk-full tests mount a tmpfs for their server: run them as root, "
                "or where users may make namespaces (sysctl user.max_user_namespaces)"
            )

    if os.geteuid() == 0:
        call("unshare", _CLONE_NEWNS)
    else:
        call("unshare", _CLONE_NEWNS | _CLONE_NEWUSER)
        Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/uid_map").write_text(f"{user} {user} 1")
        Path("/proc/self/gid_map").write_text(f"{group} {group} 1")
    # Else the mount would show up for everybody.
    call("mount", b"none", b"/", None, _MS_REC | _MS_PRIVATE, None)
    options = f"size={megabytes}m,mode=0700,uid={user},gid={group}".encode()
    call("mount", b"tmpfs", folder.encode(), b"tmpfs", 0, options)
    if os.geteuid() == 0:
        os.setgroups([])
        os.setgid(group)
        os.setuid(user)
    os.execv(command[0], command)


if __name__ == "__main__":
    main()

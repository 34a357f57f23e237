"""Starts one server and sees to it that the server does not outlive whoever asked for it.

A program of its own (run by path, standard library only), because only another process survives a `kill -9`:

1. start the server in a session of its own, so that a terminal's Ctrl-C reaches the caller only;
2. print its pid on stdout, and close stdout;
3. wait. When stdin closes or the parent changes, the caller is dead: kill the server and all under it.

With `--detach` it ends after step 2 and the server stays.

Usage: guardian.py [--detach] [--user UID:GID] -- COMMAND ...
"""

import argparse
import os
import select
import signal
import subprocess
import sys
import threading
from pathlib import Path

PARENT_CHECK_S = 1.0


def main() -> int:
    """Run as described above. Returns the server's exit code, or 0 when detached."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--detach", action="store_true")
    parser.add_argument("--user")
    parser.add_argument("command", nargs="+")
    options = parser.parse_args()
    user, group = map(int, options.user.split(":")) if options.user else (None, None)
    parent = os.getppid()
    server = subprocess.Popen(
        options.command,
        stdin=subprocess.DEVNULL,
        stdout=sys.stderr,
        cwd="/",
        user=user,
        group=group,
        extra_groups=None if user is None else [],
        start_new_session=True,
    )
    print(server.pid, flush=True)
    os.close(sys.stdout.fileno())
    if options.detach:
        # Not sys.exit: the server is meant to live on, which Popen's destructor would complain about.
        os._exit(0)
    threading.Thread(target=_kill_when_orphaned, args=(server.pid, parent), daemon=True).start()
    return server.wait()


def _kill_when_orphaned(server: int, parent: int) -> None:
    # A child forked by the caller holds the pipe open, too, hence the look at the parent.
    while os.getppid() == parent and not select.select([sys.stdin], [], [], PARENT_CHECK_S)[0]:
        pass
    for pid in [server, *_descendants(server)]:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue


def _descendants(root: int) -> list[int]:
    """Pids below `root`, parents first. Empty where there is no /proc."""
    children: dict[int, list[int]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text("utf-8", "replace").rpartition(")")[2].split()
        except OSError:
            continue
        children.setdefault(int(fields[1]), []).append(int(stat.parent.name))
    found: list[int] = []
    pending = [root]
    while pending:
        below = children.get(pending.pop(0), [])
        found += below
        pending += below
    return found


if __name__ == "__main__":
    sys.exit(main())

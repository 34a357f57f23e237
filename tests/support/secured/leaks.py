"""Looks for secrets where none may be: in files, in what `ps` shows, and in the environment of processes."""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path

import psutil


def in_files(folder: Path, secrets: Mapping[str, str], but: Iterable[Path] = ()) -> Iterator[tuple[str, str]]:
    """Yield (file, whose secret it holds) for all that is below a folder now, except for files and folders in `but`."""
    kept = set(but)
    for path, content in contents(folder):
        if not kept & {path, *path.parents}:
            yield from ((str(path), whose) for whose, secret in secrets.items() if secret.encode() in content)


def contents(folder: Path) -> Iterator[tuple[Path, bytes]]:
    """Yield each file below a folder with its bytes; one that goes away meanwhile is left out."""
    for path in folder.rglob("*"):
        with suppress(OSError):
            if path.is_file():
                yield path, path.read_bytes()


def on_command_lines(
    processes: Iterable[psutil.Process], secrets: Mapping[str, str]
) -> list[tuple[str, str]]:
    """Return (process, whose secret it shows) of what `ps` shows."""
    found = []
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            shown = " ".join(process.cmdline())
            found += [(process.name(), whose) for whose, secret in secrets.items() if secret in shown]
    return found


def in_environments(processes: Iterable[psutil.Process], secrets: Mapping[str, str]) -> list[tuple[str, str]]:
    """Return (process, whose secret it has) of the environments with which processes were started."""
    found = []
    for process in processes:
        with suppress(psutil.NoSuchProcess, psutil.ZombieProcess):
            given = " ".join(process.environ().values())
            found += [(process.name(), whose) for whose, secret in secrets.items() if secret in given]
    return found

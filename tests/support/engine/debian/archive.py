"""What the Debian archive of this machine's apt has, also for the next release: unpacked into a folder, never installed."""

import shutil
import subprocess
import tempfile
from pathlib import Path

from tests.support.engine.errors import EngineError

_KEYRING = "/usr/share/keyrings/debian-archive-keyring.gpg"
_NEXT_SUITE = "trixie"
_LAST_CHARACTERS = 3000


def unpack_debian_13(package: str, root: Path, *, with_dependencies: bool) -> None:
    """Unpack the package of Debian 13, and all that it depends on if wanted, into the folder `root`.

    Raises EngineError when it cannot be had.
    """
    mirror = archive_mirror()
    if mirror is None:
        raise EngineError(f"apt names no Debian archive to take {package} from")
    root.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".debian-", dir=root.parent) as scratch:
        folder = Path(scratch)
        sources = folder / "sources.list"
        sources.write_text(f"deb [signed-by={_KEYRING}] {mirror} {_NEXT_SUITE} main\n", encoding="utf-8")
        for needed in ("lists/partial", "archives/partial"):
            (folder / needed).mkdir(parents=True)
        # Lists and a state of our own: the machine's apt is not to learn of another release.
        apt = ["apt-get", "-qq", "-o", f"Dir::Etc::sourcelist={sources}", "-o", "Dir::Etc::sourceparts=-"]
        apt += ["-o", f"Dir::State::lists={folder / 'lists'}", "-o", f"Dir::Cache={folder}"]
        apt += ["-o", "Dir::State::status=/dev/null", "-o", "Debug::NoLocking=true"]
        apt += ["-o", "Acquire::Languages=none", "-o", "APT::Sandbox::User=root"]
        apt += ["-o", "Acquire::IndexTargets::deb::DEP-11::DefaultEnabled=false"]
        call([*apt, "update"])
        wanted = [package]
        if with_dependencies:
            # For no machine but an empty one all of them are missing.
            asked = call([*apt, "install", "--print-uris", "--yes", "--no-install-recommends", package])
            wanted = [line.split()[1].split("_")[0] for line in asked.splitlines() if line.startswith("'")]
        call([*apt, "download", *wanted], cwd=folder)
        for found in sorted(folder.glob("*.deb")):
            call(["dpkg-deb", "-x", str(found), str(root)])


def archive_mirror() -> str | None:
    """The Debian archive that this machine's apt uses for its own release; None where it names none."""
    if shutil.which("apt-get") is None:
        return None
    listed = call(
        ["apt-get", "indextargets", "--format", "$(REPO_URI) $(ORIGIN) $(LABEL)", "Created-By: Packages"]
    )
    return next(
        (line.split()[0] for line in listed.splitlines() if line.split()[1:] == ["Debian", "Debian"]), None
    )


def call(command: list[str], cwd: Path | None = None) -> str:
    """Run a program and return what it said. Raises EngineError with the end of that when it fails or is not there."""
    try:
        result = subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)
    except FileNotFoundError as error:
        raise EngineError(
            f"{command[0]} is not installed; on Debian: apt-get install {command[0]}"
        ) from error
    if result.returncode != 0:
        said = (result.stdout + result.stderr)[-_LAST_CHARACTERS:].strip()
        raise EngineError(f"'{' '.join(command)}' failed with exit code {result.returncode}:\n{said}")
    return result.stdout

"""What is taken from Debian's archive: the system under our images, and Compose."""

import shutil
import subprocess
import tempfile
from pathlib import Path

from tests.support.engine.errors import EngineError

SUITE = "bookworm"
_COMPOSE_SUITE = "trixie"
_KEYRING = "/usr/share/keyrings/debian-archive-keyring.gpg"
_HOST_CERTIFICATES = Path("/usr/local/share/ca-certificates")
_LAST_CHARACTERS = 3000


def host_certificates() -> list[Path]:
    """The certificate authorities that this machine trusts beside Debian's own; whoever is behind a proxy needs them."""
    return sorted(_HOST_CERTIFICATES.rglob("*.crt"))


def base_system(cache: Path, fingerprint: str) -> Path:
    """A tar file with a minimal Debian that trusts what this machine trusts; made where `cache` has none yet.

    `fingerprint` names what it was made from. Raises EngineError when it cannot be made.
    """
    tar = cache / f"debian-{fingerprint}.tar"
    if tar.exists():
        return tar
    cache.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".debian-", dir=cache) as scratch:
        root = Path(scratch) / "root"
        mirror = _mirror()
        _call(
            ["debootstrap", "--variant=minbase", "--include=ca-certificates", SUITE, str(root)]
            + ([mirror] if mirror else [])
        )
        for certificate in host_certificates():
            shutil.copy(certificate, root / "usr/local/share/ca-certificates")
        _call(["chroot", str(root), "update-ca-certificates"])
        made = Path(scratch) / "made.tar"
        # The folders of the manual stay: Java's package cannot be configured without them.
        left_out = (
            "proc",
            "sys",
            "var/cache/apt/archives",
            "var/lib/apt/lists",
            "usr/share/doc",
            "usr/share/locale",
        )
        _call(
            [
                "tar",
                "-C",
                str(root),
                *(f"--exclude=./{folder}/*" for folder in left_out),
                "-cf",
                str(made),
                ".",
            ]
        )
        made.rename(tar)
    return tar


def compose_plugin(cache: Path) -> Path:
    """A folder for DOCKER_CONFIG with Debian 13's Compose v2 as a plugin; downloaded where `cache` has none yet.

    Debian 12 has Compose v1 only. Raises EngineError when it cannot be had.
    """
    config = cache / "docker-config"
    plugin = config / "cli-plugins" / "docker-compose"
    if plugin.exists():
        return config
    mirror = _mirror()
    if mirror is None:
        raise EngineError(
            "`docker compose` does not work, and apt names no Debian archive to take it from; install Compose v2"
        )
    plugin.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".compose-", dir=cache) as scratch:
        folder = Path(scratch)
        sources = folder / "sources.list"
        sources.write_text(f"deb [signed-by={_KEYRING}] {mirror} {_COMPOSE_SUITE} main\n", encoding="utf-8")
        for needed in ("lists/partial", "archives/partial"):
            (folder / needed).mkdir(parents=True)
        # Lists of our own: the machine's apt is not to learn of another release.
        apt = ["apt-get", "-qq", "-o", f"Dir::Etc::sourcelist={sources}", "-o", "Dir::Etc::sourceparts=-"]
        apt += ["-o", f"Dir::State::lists={folder / 'lists'}", "-o", f"Dir::Cache={folder}"]
        apt += ["-o", "Acquire::Languages=none", "-o", "APT::Sandbox::User=root"]
        apt += ["-o", "Acquire::IndexTargets::deb::DEP-11::DefaultEnabled=false"]
        _call([*apt, "update"])
        _call([*apt, "download", "docker-compose"], cwd=folder)
        [package] = folder.glob("docker-compose_*.deb")
        _call(["dpkg-deb", "-x", str(package), str(folder / "x")])
        (folder / "x/usr/libexec/docker/cli-plugins/docker-compose").rename(plugin)
    return config


def _mirror() -> str | None:
    """The Debian archive that this machine's apt uses for its own release; None where it names none."""
    if shutil.which("apt-get") is None:
        return None
    listed = _call(
        ["apt-get", "indextargets", "--format", "$(REPO_URI) $(ORIGIN) $(LABEL)", "Created-By: Packages"]
    )
    return next(
        (line.split()[0] for line in listed.splitlines() if line.split()[1:] == ["Debian", "Debian"]), None
    )


def _call(command: list[str], cwd: Path | None = None) -> str:
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

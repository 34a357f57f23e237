"""The system under our images, and Compose, from the Debian archive."""

import shutil
import tempfile
from pathlib import Path

from tests.support.engine.debian.archive import archive_mirror, call, unpack_debian_13

SUITE = "bookworm"
_HOST_CERTIFICATES = Path("/usr/local/share/ca-certificates")


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
        mirror = archive_mirror()
        call(
            ["debootstrap", "--variant=minbase", "--include=ca-certificates", SUITE, str(root)]
            + ([mirror] if mirror else [])
        )
        for certificate in host_certificates():
            shutil.copy(certificate, root / "usr/local/share/ca-certificates")
        call(["chroot", str(root), "update-ca-certificates"])
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
        call(
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
    plugin.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".compose-", dir=cache) as scratch:
        unpack_debian_13("docker-compose", Path(scratch), with_dependencies=False)
        (Path(scratch) / "usr/libexec/docker/cli-plugins/docker-compose").rename(plugin)
    return config

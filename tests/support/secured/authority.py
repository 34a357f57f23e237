"""A certificate authority for servers on loopback."""

import subprocess
from pathlib import Path

from devstack.processes.port import LOOPBACK

_NEW_KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")


class Authority:
    """Signs certificates. `certificate`: the file by which clients know it."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self._key = folder / "ca.key"
        self.certificate = folder / "ca.pem"
        names = ("-keyout", self._key, "-out", self.certificate, "-days", "7", "-subj", "/CN=authority")
        openssl("req", "-x509", *_NEW_KEY, *names)

    def issue(self, name: str, subject: str = "", names: str = f"IP:{LOOPBACK}") -> tuple[Path, Path]:
        """Return a new key and its certificate, as files NAME.key and NAME.crt. `names`: where a server with it answers."""
        key, request, certificate = (self._folder / f"{name}.{kind}" for kind in ("key", "csr", "crt"))
        extensions = self._folder / "names"
        extensions.write_text(f"subjectAltName = {names}\n", "utf-8")
        openssl("req", *_NEW_KEY, "-keyout", key, "-out", request, "-subj", subject or f"/CN={name}")
        signed_by = ("-CA", self.certificate, "-CAkey", self._key, "-CAcreateserial", "-days", "7")
        openssl("x509", "-req", "-in", request, *signed_by, "-extfile", extensions, "-out", certificate)
        return key, certificate


def openssl(*words: str | Path, data: bytes | None = None) -> bytes:
    """Run openssl on `data`; return what it prints."""
    done = subprocess.run(["openssl", *map(str, words)], check=True, capture_output=True, input=data)
    return done.stdout

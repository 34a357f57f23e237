"""A server of S3's protocol (moto's) as a process on this machine, and the environment of its clients."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pyarrow import fs

from devstack.processes.port import LOOPBACK, ReservedPort, is_listening
from tests.support.paths import ROOT
from tests.support.waiting import wait_until

INSTALLED = ROOT / "build/s3-server"
"""Where `make s3-server` puts it: its packages are no part of the developers' environment."""

BUCKET = "archive"
CREDENTIALS = {
    "AWS_ACCESS_KEY_ID": "AKIATESTING",
    "AWS_SECRET_ACCESS_KEY": "not-to-be-shown",
    # Else a client without credentials asks the address of EC2.
    "AWS_EC2_METADATA_DISABLED": "true",
}


@contextmanager
def s3_server(log: Path, **variables: str) -> Iterator[int]:
    """Run a server with an empty bucket; yield its port. `variables`: of its environment."""
    if not INSTALLED.is_dir():
        raise RuntimeError("the server of S3 is not installed: run `make s3-server`")
    reserved = ReservedPort()
    port = reserved.number
    environment = os.environ | {"PYTHONPATH": str(INSTALLED)} | CREDENTIALS | variables
    arguments = [sys.executable, "-m", "moto.server", "--host", LOOPBACK, "--port", str(port)]
    with log.open("wb") as output:
        process = subprocess.Popen(arguments, env=environment, stdout=output, stderr=output)
    try:
        wait_until(lambda: is_listening(port), f"the server of S3, see {log}")
        client(port).create_dir(BUCKET)
        yield port
    finally:
        process.kill()
        process.wait()
        reserved.close()


def client(port: int) -> fs.S3FileSystem:
    """A client of its own, to look at what is there."""
    return fs.S3FileSystem(
        access_key=CREDENTIALS["AWS_ACCESS_KEY_ID"],
        secret_key=CREDENTIALS["AWS_SECRET_ACCESS_KEY"],
        region="us-east-1",
        scheme="http",
        endpoint_override=f"{LOOPBACK}:{port}",
        allow_bucket_creation=True,
    )

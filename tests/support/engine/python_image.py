"""The image that this project's images are built on: Python, with the wheels that pip has made on this machine."""

import shutil
import tempfile
from pathlib import Path

from spark_job.spark.jars import cache_dir
from tests.support.engine.engine import Engine
from tests.support.engine.stand_ins import PYTHON

_WARM = "spark-outbox/python-with-wheels:3.11-slim-bookworm"
# pip uses a cached wheel for a pinned source package since 23.1; the official image has 24.0, a stand-in may have Debian's 23.0.
# A pip from the index trusts its own certificates only, so it is told those of the system.
_RECIPE = """\
ARG BASE
FROM $BASE
ENV PIP_CERT=/etc/ssl/certs/ca-certificates.crt PIP_CACHE_DIR=/var/cache/pip
RUN pip install --disable-pip-version-check --root-user-action ignore pip==24.0
COPY wheels /var/cache/pip/wheels
"""


def python_image(engine: Engine) -> str:
    """Name an image to build on. pyspark is published as source only, and to build its wheel of 450 MB takes minutes.

    Where this machine's pip has no such wheel, the official image does, only more slowly.
    """
    wheels = cache_dir().parents[1] / "pip" / "wheels"
    found = [path.parent for path in wheels.rglob("pyspark-*.whl") if (path.parent / "origin.json").exists()]
    if not found:
        return engine.image(PYTHON)
    with tempfile.TemporaryDirectory() as folder:
        context = Path(folder)
        (context / "Dockerfile").write_text(_RECIPE, "utf-8")
        for each in found:
            shutil.copytree(each, context / "wheels" / each.relative_to(wheels))
        base = f"BASE={engine.image(PYTHON)}"
        engine.run(
            *("build", "--network", "host", "--build-arg", base, "--tag", _WARM, str(context)), timeout_s=600
        )
    return _WARM

"""The image that this project's images are built on: Python, with the wheels that pip has made on this machine."""

import hashlib
import shutil
import tempfile
from pathlib import Path

from spark_job.spark.jars import cache_dir
from tests.support.engine.engine import Engine
from tests.support.engine.stand_ins import PYTHON

_WARM = "spark-outbox/python-with-wheels"
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
    base = engine.image(PYTHON)
    if not found:
        return base
    made_of = "\n".join([base, _RECIPE, *sorted(str(each.relative_to(wheels)) for each in found)])
    warm = f"{_WARM}:{hashlib.sha256(made_of.encode()).hexdigest()[:16]}"
    # The wheels alone, 450 MB each, take a minute to be handed over.
    if engine.has_image(warm):
        return warm
    with tempfile.TemporaryDirectory() as folder:
        context = Path(folder)
        (context / "Dockerfile").write_text(_RECIPE, "utf-8")
        for each in found:
            shutil.copytree(each, context / "wheels" / each.relative_to(wheels))
        options = ("--network", "host", "--build-arg", f"BASE={base}", "--tag", warm)
        engine.run("build", *options, str(context), timeout_s=600)
    return warm

"""`spark-job prepare`: do in advance the work that every start on this machine, or from this image, would repeat."""

import tempfile
import time
from pathlib import Path

from service.commands.output import error_console
from service.errors import OutboxError
from service.settings import JobSettings

_EXIT_S = 300.0


def prepare() -> None:
    """Download the connector's jars and archive Spark's classes: each start takes some five seconds less.

    It takes half a minute and 160 MB in the user's cache, once for each version of Java and Spark: in an image's build, or once on a
    machine. What is there already is kept.
    """
    from spark_job.spark import class_archive
    from spark_job.spark.jars import java_executable, spark_connector_jars

    screen = error_console()
    spark_connector_jars()  # a new release may need others, although the archive, of Spark's own jars, is there
    path = class_archive.archive(java_executable())
    if path.is_file():
        screen.print(f"The archive of classes is there: {path}")
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    began = time.monotonic()
    with (
        screen.status("Spark runs for a moment, and writes down which classes it loads"),
        # Inside the cache, so that the final rename stays on one file system and is atomic.
        tempfile.TemporaryDirectory(prefix=".archive-", dir=path.parent) as scratch,
    ):
        made = Path(scratch) / path.name
        _run_spark(made)
        if not made.is_file():
            raise OutboxError(
                f"the JVM wrote no archive to {path.parent}: is the disk full? Starts work without one, and take longer."
            )
        made.replace(path)
    size, seconds = path.stat().st_size / 1e6, time.monotonic() - began
    screen.print(f"Made in {seconds:.0f} s, {size:.0f} MB: {path}")


def _run_spark(archive: Path) -> None:
    from spark_job.spark import class_archive, jvm, jvm_environment
    from spark_job.spark.session import start_session, stop_session
    from spark_job.spark.work_folder import WorkFolder
    from spark_job.stream.warm_up import load_streaming, warm_up

    folder = WorkFolder()
    try:
        options = {
            "spark.driver.extraJavaOptions": " ".join(
                map(jvm_environment.option, class_archive.recording(archive))
            )
        }
        settings = JobSettings(cache=str(folder.path), spark_options=options)
        session = start_session(settings, folder)
        warm_up(session, settings.tasks)
        with folder.checkpoint() as checkpoint:
            load_streaming(session, checkpoint)
        stop_session(session)
        jvm.end(_EXIT_S)
    finally:
        jvm.forget()
        folder.remove()

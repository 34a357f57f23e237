"""A job that spark-submit starts, as docs/cluster.md has it."""

import sys
from pathlib import Path

import pyspark

from tests.support.pipeline.pipeline import Pipeline


def spark_submit(folder: Path, *options: str) -> list[str]:
    """What takes the place of `spark-job`, with these options of spark-submit."""
    script = folder / "submit.py"
    script.write_text("from spark_job.cli import main\n\nmain()\n", "utf-8")
    return [
        str(Path(pyspark.__path__[0]) / "bin" / "spark-submit"),
        *options,
        *("--name", "sessions"),
        *("--conf", f"spark.pyspark.driver.python={sys.executable}"),
        str(script),
    ]


def stop_submitted(pipeline: Pipeline) -> None:
    """Stop both services; a signal would end the JVM, and the job with it, wherever it is."""
    pipeline.command("stop")
    assert pipeline.job.wait() == 0, pipeline.job.tail()
    assert pipeline.publisher.terminate() == 0, pipeline.publisher.tail()

"""`spark-job rescale`: another number of buckets and shuffle partitions, without loss or repetition."""

from typing import Annotated

import typer

from db.errors import SettingsError
from db.settings import load_settings
from spark_job.commands.options import Config, Json, Timeout, Yes


def rescale(
    buckets: Annotated[
        int,
        typer.Option(
            "--buckets", min=1, max=4096, help="Groups of keys; a multiple of --shuffle-partitions."
        ),
    ],
    shuffle_partitions: Annotated[
        int,
        typer.Option(
            "--shuffle-partitions", min=1, max=1024, help="Tasks that assemble at once, best the cores."
        ),
    ],
    config: Config = None,
    accept_data_loss: Annotated[
        bool,
        typer.Option(
            "--accept-data-loss", help="Go on although Kafka has deleted input that open sessions need."
        ),
    ] = False,
    timeout: Timeout = 300.0,
    yes: Yes = False,
    as_json: Json = False,
) -> None:
    """Change how many tasks assemble at once. Only the sessions that are open now are read again; nothing is lost or sent twice.

    A running job does it between two batches. The numbers hold from then on, whatever the settings say.
    """
    from spark_job.commands.moving import (
        move,
    )  # Spark's imports cost seconds that the other commands need not pay

    if buckets % shuffle_partitions:
        raise SettingsError(
            f"{buckets} buckets cannot be spread evenly over {shuffle_partitions} shuffle partitions: choose a multiple of them."
        )
    arguments = {
        "buckets": buckets,
        "shuffle_partitions": shuffle_partitions,
        "accept_data_loss": accept_data_loss,
    }
    move(load_settings(config), "rescale", arguments, timeout_s=timeout, yes=yes, as_json=as_json)

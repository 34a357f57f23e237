"""`publisher check-cluster`: tests a Kafka cluster on a scratch topic and prints the results."""

import threading

import typer

from publisher.cluster_check.checks import CHECKS, explain, topic_checks
from publisher.cluster_check.scratch import Scratch
from publisher.kafka.clients import check_options
from service.commands.checks import run_checks, show_results
from service.commands.options import Config, Json
from service.commands.output import console, error_console
from service.errors import OutboxError
from service.lifecycle.shutdown import stop_on_signals
from service.observability import logs
from service.settings import load_settings


def check_cluster(config: Config = None, as_json: Json = False) -> None:
    """Test on a temporary topic what both services need of Kafka. Needs no database.

    The topic's name begins with [publisher] progress_topic, so that the publisher's rights suffice; deleting it needs Delete. SIGINT and
    SIGTERM delete it, too.

    Exit codes: 0 the cluster can be used, 1 interrupted, 16 a check failed or Kafka refuses it, 2 wrong settings, 6 Kafka did not answer.
    """
    settings = load_settings(config)
    logs.configure(settings.log)
    check_options(settings.kafka, settings.publisher.transaction_timeout_ms)
    stop = threading.Event()
    # Install the handlers first: a thread started earlier would receive a signal and end the process at once.
    with stop_on_signals(stop):
        scratch = Scratch(settings, stop.is_set)
        try:
            cluster_id = scratch.create()
            checks = [*CHECKS, *topic_checks(settings)]
            found = run_checks(checks, scratch, explain, quiet=as_json, stopped=stop.is_set)
        except OutboxError as error:
            if stop.is_set():
                raise typer.Abort from error
            raise
        finally:
            left = scratch.remove()
            if left is not None:
                error_console().print(
                    f"the scratch topic may still be there: {left}. Delete it: kafka-topics.sh --bootstrap-server "
                    f"{settings.kafka.bootstrap_servers} --delete --topic {scratch.topic}"
                )
    if stop.is_set():
        raise typer.Abort
    if not as_json:
        console().print(
            f"Kafka cluster {cluster_id} at {settings.kafka.bootstrap_servers}, scratch topic {scratch.topic}"
        )
    show_results(found, json=as_json)

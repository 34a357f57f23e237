"""`publisher run`: delivers until a signal, and serves the metrics port and the console meanwhile."""

import os
import sys
import threading

import structlog

from publisher.console import server as console_server
from publisher.monitoring.health import ProcessHealth
from publisher.outbox.identity import OutboxIdentity
from publisher.protocol.epochs import Epoch
from publisher.relay import Relay
from publisher.status import endpoint
from service.commands.options import Config
from service.kafka.transport import name_unprotected
from service.lifecycle import fault_points
from service.lifecycle.allocators import suit_transactions
from service.lifecycle.shutdown import stop_on_signals
from service.observability import logs, tracing
from service.printable import printable
from service.settings import Settings, load_settings

_log = structlog.get_logger()


def run(config: Config = None) -> None:
    """Deliver until SIGTERM or SIGINT: the transaction in flight ends first, and a second signal forces the end.

    Any number of processes share the lanes evenly. Stopping waits at most 12 s for Kafka.

    Exit codes: 0 stopped as asked, 5 no lane of any process can continue or the outbox belongs elsewhere, 6 Postgres or Kafka did not
    answer at the start, 2 wrong settings, 3 wrong schema.
    """
    settings = load_settings(config)
    logs.configure(settings.log)
    name_unprotected(settings)
    fault_points.arm(settings.testing.fault_file)
    suit_transactions()
    stop = threading.Event()
    health = ProcessHealth(settings.metrics.hung_s)
    relay = Relay(settings, stop, lambda identity, epoch: print_start(settings, identity, epoch), health)
    # Install the handlers first: a thread started earlier would receive a signal and end the process at once.
    with (
        stop_on_signals(stop),
        tracing.sending(settings.tracing, "publisher"),
        endpoint.served(settings, health),
        console_server.served(settings, lambda: endpoint.ready(settings, health).reasons),
    ):
        relay.run()
    if relay.abandoned:
        # Threads still wait in librdkafka for an unavailable Kafka. A normal exit of the interpreter would wait for them.
        os._exit(0)


def print_start(settings: Settings, identity: OutboxIdentity, epoch: Epoch) -> None:
    # Prints no counts, because counting a large backlog would delay the lanes.
    if settings.log.format == "json":  # then every line of the output is JSON
        _log.info(
            "publisher_started",
            epoch=epoch.epoch,
            lanes=epoch.lanes,
            from_batch=epoch.from_batch,
            outbox=str(identity.outbox_uuid),
        )
        _log.info(
            "publisher_delivers_to",
            cluster=identity.cluster_id,
            bootstrap_servers=settings.kafka.bootstrap_servers,
        )
        return
    logs.Lines(sys.stdout).msg(
        f"outbox {identity.outbox_uuid} -> Kafka cluster {printable(str(identity.cluster_id))} at {settings.kafka.bootstrap_servers}\n"
        f"epoch {epoch.epoch} from batch {epoch.from_batch}, {epoch.lanes} lanes; `publisher status` shows how far they are"
    )

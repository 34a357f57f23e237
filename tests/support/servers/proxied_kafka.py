"""A broker with two listeners: one for the tests, one behind a proxy for the publisher."""

from pathlib import Path

from devstack.kafka import Kafka
from devstack.processes.port import LOOPBACK, ReservedPort
from tests.support.proxies.kafka import KafkaProxy

HEAP = "384m"
# The broker looks for transactions that ran out every 10 s by default.
QUICK = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": "500"}


class ProxiedKafka(Kafka):
    """Clients that come through the proxy are sent back to the proxy; those of `bootstrap_servers` never meet it."""

    def __init__(self, data_dir: Path, proxy: KafkaProxy) -> None:
        super().__init__(data_dir, fast=True, heap=HEAP, settings=dict(QUICK))
        self._behind = ReservedPort()
        self._proxy = proxy
        proxy.target = self._behind.number

    def restart_with(self, settings: dict[str, str]) -> None:
        """Stop, and start with these settings beside the usual ones."""
        self.stop()
        self._settings = QUICK | settings
        self.start()

    def _server_settings(self) -> dict[str, str]:
        settings = super()._server_settings()
        listener = f"PROXIED://{LOOPBACK}:{self._behind.number}"
        return settings | {
            "listeners": f"{settings['listeners']},{listener}",
            "advertised.listeners": f"{settings['advertised.listeners']},PROXIED://{self._proxy.address}",
            "listener.security.protocol.map": f"{settings['listener.security.protocol.map']},PROXIED:PLAINTEXT",
        }

    def _delete_data(self) -> None:
        super()._delete_data()
        self._behind.close()

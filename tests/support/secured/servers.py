"""A Kafka and a Postgres that want TLS and passwords, and know the two services."""

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

from db.migrate import upgrade
from tests.support.secured.kafka import SecuredKafka
from tests.support.secured.postgres import SecuredPostgres
from tests.support.secured.rights import JOB, PUBLISHER, single


class Servers(NamedTuple):
    """Both. `allow` grants the listed rights to the services."""

    kafka: SecuredKafka
    postgres: SecuredPostgres

    def allow(self, topic: str, group: str, outputs: list[str]) -> None:
        """Grant what docs/ecosystem.md lists. `topic`: the input; `group`: the job's consumer group."""
        self.kafka.allow(*(right.acl("job", input=topic, group=group) for right in single(JOB)))
        for output in outputs:
            self.kafka.allow(*(right.acl("publisher", output=output) for right in single(PUBLISHER)))


@contextmanager
def secured_servers(
    folder: Path, secrets: Mapping[str, str], reauthenticate_ms: int = 0
) -> Iterator[Servers]:
    """Each knows the job and the publisher by a password each: {"job kafka": …, "job postgres": …, …}. The rest is as for SecuredKafka."""
    with ExitStack() as cleanup:
        servers = Servers(
            SecuredKafka(folder / "kafka", reauthenticate_ms=reauthenticate_ms),
            SecuredPostgres(folder / "postgres"),
        )
        for server in servers:
            cleanup.callback(server.destroy)
            server.start()
        upgrade(servers.postgres.dsn())
        for user, role in (("job", "outbox_writer"), ("publisher", "outbox_publisher")):
            servers.kafka.add_user(user, secrets[f"{user} kafka"])
            servers.postgres.add_login(user, secrets[f"{user} postgres"], role)
        yield servers

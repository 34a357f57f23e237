"""Passwords and a certificate change under load; both services continue with the new ones, and nobody restarts them."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.pipeline import verdict
from tests.support.pipeline.pipeline import Pipeline
from tests.support.reading import end_offsets
from tests.support.secured.servers import Servers, secured_servers

SERVICES = ("job", "publisher")
FIRST = {
    f"{user} {server}": f"first-{user}-{server}" for user in SERVICES for server in ("kafka", "postgres")
}
REAUTHENTICATE_MS = 5_000
REFUSED = "CredentialsRefusedError"


@pytest.fixture
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    """Kafka wants each connection's password again after a while, as brokers do where passwords are rotated."""
    folder = tmp_path_factory.mktemp("servers")
    with secured_servers(folder, FIRST, reauthenticate_ms=REAUTHENTICATE_MS) as found:
        yield found


class Secrets:
    """The files that the services were given."""

    def __init__(self, servers: Servers, folder: Path) -> None:
        self._servers = servers
        self._folder = folder
        self._authority = folder / "ca.pem"
        folder.mkdir()
        self.trust()
        for user in SERVICES:
            self.write_kafka(user, FIRST[f"{user} kafka"])
            self.write_dsn(user, FIRST[f"{user} postgres"])

    def write_kafka(self, user: str, password: str) -> None:
        (self._folder / f"{user}.toml").write_text(f'"sasl.password" = "{password}"\n')

    def write_dsn(self, user: str, password: str) -> None:
        (self._folder / f"{user}.dsn").write_text(self._servers.postgres.secured_dsn(user, password))

    def trust(self) -> None:
        """Take the authority that Kafka has now."""
        self._authority.write_bytes(self._servers.kafka.authority.read_bytes())

    def settings(self, user: str) -> dict[str, str]:
        options = {"sasl.username": user, "ssl.ca.location": str(self._authority)}
        return {
            "OUTBOX_POSTGRES__DSN_FILE": str(self._folder / f"{user}.dsn"),
            "OUTBOX_KAFKA__BOOTSTRAP_SERVERS": self._servers.kafka.secured_servers,
            "OUTBOX_KAFKA__OPTIONS": json.dumps(self._servers.kafka.options(**options)),
            "OUTBOX_KAFKA__SECRET_OPTIONS_FILE": str(self._folder / f"{user}.toml"),
            "OUTBOX_KAFKA__REQUEST_TIMEOUT_S": "10",
        }


def progress(pipeline: Pipeline) -> None:
    """Wait until a batch that is new now has been written and delivered."""
    newest = pipeline.batches()
    pipeline.wait_until(
        lambda: pipeline.ask("SELECT min(cursor_batch) > %s FROM outbox.lane", newest)[0][0],
        "the delivery of a newer batch",
        alive=(pipeline.job, pipeline.publisher),
    )


def refusals(pipeline: Pipeline) -> int:
    """Lanes that say that their credentials are refused."""
    found = pipeline.ask("SELECT count(*) FROM outbox.lane WHERE stopped_reason LIKE 'not_authorised%%'")
    return int(found[0][0])


@pytest.mark.timeout(900)
def test_new_passwords_and_a_new_certificate_reach_both_services_while_they_run(
    servers: Servers, topic_prefix: str, tmp_path: Path
) -> None:
    kafka, postgres = servers
    secrets = Secrets(servers, tmp_path / "given")
    options = {"restart": {"delay_s": 1, "max_delay_s": 1}}
    with Pipeline(
        postgres.dsn(), kafka.bootstrap_servers, topic_prefix, tmp_path, options=options
    ) as pipeline:
        servers.allow(pipeline.input, pipeline.options["source"]["consumer_group"], pipeline.outputs)
        pipeline.job.start(**secrets.settings("job"))
        pipeline.publisher.start(**secrets.settings("publisher"))
        with pipeline.load(51, sessions_per_second=10):
            progress(pipeline)

            # While the job still writes: a publisher with nothing to send asks for nothing.
            kafka.add_user("publisher", "second-publisher-kafka")
            pipeline.wait_until(lambda: refusals(pipeline), "a lane that says why")
            secrets.write_kafka("publisher", "second-publisher-kafka")
            progress(pipeline)
            pipeline.wait_until(lambda: not refusals(pipeline), "lanes that run again")

            kafka.add_user("job", "second-job-kafka")
            pipeline.wait_until(lambda: REFUSED in pipeline.restarts(), "a job that was refused")
            secrets.write_kafka("job", "second-job-kafka")
            progress(pipeline)

            for user in SERVICES:
                postgres.change_password(user, f"second-{user}-postgres")
                secrets.write_dsn(user, f"second-{user}-postgres")
            progress(pipeline)

            kafka.certify()
            kafka.kafka.stop()
            kafka.kafka.start()
            secrets.trust()
            progress(pipeline)
        expected = pipeline.expectation()
        pipeline.complete(expected)
        pipeline.stop()
        ends = end_offsets(pipeline.bootstrap, pipeline.outputs, committed=True)
        pipeline.wait_until(lambda: pipeline.watcher.has_read_to(ends), "all outputs")
        # Lanes may still say that their transactions are small since the last refusal.
        verdict.assert_delivered(expected, pipeline.watcher.seen)
        verdict.assert_outbox(pipeline.dsn, expected)
        verdict.assert_ledger_agrees(pipeline.dsn)

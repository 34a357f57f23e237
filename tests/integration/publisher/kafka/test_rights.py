"""On a Kafka with ACLs the rights that docs/ecosystem.md lists for the publisher are enough, and each of them is needed."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from service.errors import RefusedError
from service.settings import KafkaSettings, Settings
from tests.support.outbox.audits import failed, fill, publisher_command, run_audit
from tests.support.outbox.batches import Outbox, Session, simple
from tests.support.outbox.deliveries import deliver, drained, reasons
from tests.support.processes.publishers import RelayThread, settings_for
from tests.support.secured.kafka import PASSWORD, SecuredKafka
from tests.support.secured.rights import PUBLISHER, Right, single
from tests.support.waiting import wait_until

RIGHTS = list(single(PUBLISHER))
KINDS = {"group": "consumer group", "transactional_id": "transactional id"}


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredKafka]:
    """The module's broker."""
    server = SecuredKafka(tmp_path_factory.mktemp("guarded"))
    server.start()
    yield server
    server.destroy()


@pytest.fixture
def settings(outbox: Outbox, kafka: SecuredKafka, tmp_path: Path) -> Settings:
    """Settings of a publisher that has the listed rights and no others."""
    kafka.allow(*(each.acl(output=outbox.topic) for each in RIGHTS))
    secret = tmp_path / "kafka-secret.toml"
    secret.write_text(f'"sasl.password" = "{PASSWORD}"\n', "utf-8")
    settings = settings_for(outbox.dsn, kafka.secured_servers)
    guarded = KafkaSettings(
        bootstrap_servers=kafka.secured_servers, options=kafka.options(), secret_options_file=secret
    )
    return settings.model_copy(update={"kafka": guarded})


def hold_until_granted(outbox: Outbox, settings: Settings, kafka: SecuredKafka, needed: Right) -> None:
    """A publisher that lacks the right says which one, and delivers once it has it."""
    names = {"output": outbox.topic}
    operation = f"{needed.operation} on {KINDS.get(needed.kind, needed.kind)} '"
    name = f"'{needed.name.format_map(names)}"

    def is_named() -> bool:
        found = [reason for reason in reasons(outbox.dsn) if reason.startswith("not_authorised")]
        return any(operation in reason and name in reason for reason in found)

    with RelayThread(settings) as running:
        wait_until(is_named, lambda: f"{operation} {name}, but {reasons(outbox.dsn)} {running.error}")
        kafka.allow(needed.acl(**names))
        wait_until(
            lambda: drained(outbox.dsn) and not any(reasons(outbox.dsn)),
            lambda: f"the delivery, but {reasons(outbox.dsn)}",
        )


@pytest.mark.guarantee(113)
@pytest.mark.parametrize("needed", RIGHTS, ids=lambda each: f"{each.operation} {each.name}")
def test_without_a_right_the_lanes_stop_and_name_it_until_it_is_granted(
    outbox: Outbox, settings: Settings, kafka: SecuredKafka, needed: Right
) -> None:
    outbox.batch(simple(1, 4))
    if needed.operation != "Create":
        # The progress topic is made once, and read by those who come later.
        deliver(settings)
        outbox.batch(simple(2, 4))
    kafka.revoke(needed.acl(output=outbox.topic))
    # Without any right Kafka does not even describe the topic, and says that instead.
    kafka.allow(Right("topic", "{output}", "Describe", prefix=False).acl(output=outbox.topic))
    hold_until_granted(outbox, settings, kafka, needed)


@pytest.mark.guarantee(113)
def test_more_lanes_need_alter(outbox: Outbox, settings: Settings, kafka: SecuredKafka) -> None:
    outbox.batch(simple(1, 4))
    deliver(settings)
    outbox.add_epoch(2, 2, 4)
    outbox.batch(simple(2, 4))
    alter = Right("topic", "outbox-progress-", "Alter", prefix=True)
    hold_until_granted(outbox, settings, kafka, alter)
    kafka.revoke(alter.acl())


def test_topics_that_the_publisher_is_to_make_need_create(
    outbox: Outbox, settings: Settings, kafka: SecuredKafka
) -> None:
    made = f"{outbox.topic}-made"
    kafka.allow(*(each.acl(output=made) for each in RIGHTS))
    publisher = settings.publisher.model_copy(update={"create_topics": True})
    outbox.batch({"a": [Session([b"1"], 10, topics=[made])]})
    outbox.topic = made
    create = Right("topic", "{output}", "Create", prefix=False)
    hold_until_granted(outbox, settings.model_copy(update={"publisher": publisher}), kafka, create)


@pytest.mark.guarantee(113)
def test_commands_that_read_outputs_back_need_read_on_them_and_all_others_nothing_more(
    outbox: Outbox, settings: Settings, kafka: SecuredKafka, tmp_path: Path
) -> None:
    fill(outbox, 2)
    deliver(settings)
    assert failed(run_audit(settings, tmp_path)) == {}
    for words in (
        ("replay", "start", "--topic", outbox.topic, "--yes"),
        ("resume", "--from", "mirror", "--yes"),
    ):
        done = publisher_command(settings, *words)
        assert done.returncode == 0, (words, done.stdout, done.stderr)
    read = Right("topic", "{output}", "Read", prefix=False)
    told = f"Read on topic '{outbox.topic}' is needed"
    with pytest.raises(RefusedError, match=f"refuses this client: .*{told}"):
        run_audit(settings, tmp_path, kafka=True)
    key = outbox.written[0][0].decode()
    found = publisher_command(settings, "find", key)
    assert (found.returncode, told in found.stderr) == (RefusedError.exit_code, True), found.stderr
    kafka.allow(read.acl(output=outbox.topic))
    assert failed(run_audit(settings, tmp_path, kafka=True)) == {}

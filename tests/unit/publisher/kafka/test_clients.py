"""Options that librdkafka refuses are found at the start, whichever client refuses them."""

from pathlib import Path
from typing import Any

import pytest

from publisher.kafka.clients import check_options, client_max_bytes
from service.errors import SettingsError
from service.settings import KafkaSettings


def check(options: dict[str, Any]) -> None:
    check_options(KafkaSettings(bootstrap_servers="127.0.0.1:1", options=options), 60_000)


@pytest.mark.parametrize(
    "options",
    [
        {"no.such.option": "1"},
        {"message.max.bytes": "many"},
        # Only a producer minds these.
        {"compression.type": "nonsense"},
        {"message.timeout.ms": 120_000},
        {"max.in.flight": 1_000},
    ],
)
def test_a_wrong_option_is_a_wrong_setting(options: dict[str, Any]) -> None:
    with pytest.raises(SettingsError, match=r"\[kafka.options\]"):
        check(options)


def test_good_options_pass() -> None:
    check(
        {
            "compression.type": "zstd",
            "linger.ms": 1,
            "acks": -1,
            "enable.idempotence": True,
            "group.id": "mine",
            "socket.max.fails": 1,
        }
    )


@pytest.mark.guarantee(114)
@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("acks", 1),
        ("request.required.acks", "0"),
        ("enable.idempotence", False),
        ("transactional.id", "mine"),
        ("transaction.timeout.ms", 5_000),
        ("isolation.level", "read_uncommitted"),
        ("allow.auto.create.topics", True),
        ("delivery.report.only.error", True),
        ("auto.offset.reset", "latest"),
        ("socket.max.fails", 0),
        ("socket.max.fails", "2"),
    ],
)
def test_an_option_that_exactness_forbids_is_refused_rather_than_overwritten(
    name: str, value: object
) -> None:
    with pytest.raises(SettingsError, match=rf"\[kafka.options\] {name} = .* is refused: "):
        check({name: value})


@pytest.mark.guarantee(108)
def test_a_secret_options_file_is_checked_as_well(tmp_path: Path) -> None:
    file = tmp_path / "secret.toml"
    file.write_text('acks = "0"\n"sasl.password" = "hidden-in-a-file"\n', "utf-8")
    settings = KafkaSettings(bootstrap_servers="127.0.0.1:1", secret_options_file=file)
    with pytest.raises(SettingsError, match="acks = '0' is refused") as refused:
        check_options(settings, 60_000)
    assert "hidden-in-a-file" not in str(refused.value)


def test_every_other_option_reaches_librdkafka_as_it_is() -> None:
    # It refuses the value itself, so it was given it.
    with pytest.raises(SettingsError, match=r'"ssl.endpoint.identification.algorithm"'):
        check({"ssl.endpoint.identification.algorithm": "nonsense"})


def test_a_record_that_the_producers_queue_can_never_hold_is_too_large_for_the_producer() -> None:
    """It would wait for room for ever, and its lane with it."""
    assert client_max_bytes(KafkaSettings(options={"queue.buffering.max.kbytes": 16})) == 16 * 1024
    assert client_max_bytes(KafkaSettings(options={"message.max.bytes": 2_000})) == 2_000
    assert client_max_bytes(KafkaSettings()) == 1_000_000_000

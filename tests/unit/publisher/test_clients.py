"""Options that librdkafka refuses are found at the start, whichever client refuses them."""

from typing import Any

import pytest

from db.errors import SettingsError
from db.settings import KafkaSettings
from publisher.clients import check_options


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
    check({"compression.type": "zstd", "linger.ms": 1})

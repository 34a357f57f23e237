"""The image's variables for broker settings."""

import pytest

from tests.support.containers.kafka import variable


@pytest.mark.parametrize(
    ("setting", "name"),
    [
        ("log.dirs", "KAFKA_LOG_DIRS"),
        ("listener.name.sasl_ssl.scram-sha-512", "KAFKA_LISTENER_NAME_SASL__SSL_SCRAM___SHA___512"),
    ],
)
def test_a_setting_is_written_as_the_official_image_reads_it(setting: str, name: str) -> None:
    assert variable(setting) == name

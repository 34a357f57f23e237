"""A start asks the registry once: wrong credentials end it, and nothing else that the registry does."""

from collections.abc import Iterator

import pytest

from service.errors import CredentialsRefusedError, SettingsError
from service.formats.registry import client
from spark_job.assembly.schemas import check_registry
from tests.support.schemas.registry import Registry, registry


@pytest.fixture(name="server")
def _server() -> Iterator[Registry]:
    with registry(own=True) as found:
        yield found


def test_wrong_credentials_end_the_start_and_the_options_are_named(server: Registry) -> None:
    server.admit_only("job:secret")
    wrong = {**server.options(), "basic.auth.user.info": "job:s3cret", "max.retries": 5}
    with pytest.raises(CredentialsRefusedError, match=r"HTTP 401.*secret_options_file") as caught:
        check_registry(wrong)
    assert caught.value.exit_code == 16
    assert "s3cret" not in str(caught.value)
    check_registry({**wrong, "basic.auth.user.info": "job:secret"})
    assert server.asked == ["GET /schemas/ids/0"] * 2


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (500, b'{"error_code": 50001, "message": "out of order"}'),
        (503, b"<html>"),
        (429, b"{}"),
        (404, b'{"error_code": 404, "message": "HTTP 404 Not Found"}'),
        (404, b"<html>"),
        (403, b'{"error_code": 40301, "message": "not this id"}'),
        (200, b"<html>"),
        (200, b"[" * 100_000),
    ],
)
def test_any_other_answer_is_for_the_tasks_to_judge(server: Registry, status: int, body: bytes) -> None:
    with server.answering(status, body):
        check_registry({**server.options(), "max.retries": 5})
    assert len(server.asked) == 1


def test_a_registry_that_does_not_answer_keeps_no_start_waiting(
    server: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    """This test would wait for an hour otherwise."""
    monkeypatch.setattr(client, "_CHECK_S", 0.1)
    with server.hanging():
        check_registry({**server.options(timeout=3_600), "max.retries": 5})


def test_a_registry_that_is_not_there_is_for_the_tasks_to_judge() -> None:
    with registry(own=True) as server:
        options = server.options()
    check_registry(options)


def test_a_job_without_a_registry_asks_none_and_a_wrong_option_is_one_of_the_settings(
    server: Registry,
) -> None:
    check_registry({})
    with pytest.raises(SettingsError, match=r"no\.such\.option"):
        check_registry({**server.options(), "no.such.option": 1})
    assert server.asked == []

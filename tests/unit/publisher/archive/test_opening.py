"""Where the archive is, and what is said where it cannot be used."""

import sys
from pathlib import Path
from unittest.mock import Mock
from uuid import UUID

import pytest
from pydantic import ValidationError
from structlog.testing import capture_logs

from publisher.archive.opening import open_archive
from service.errors import SchemaError, SettingsError
from service.settings import RetentionSettings

_UUID = UUID(int=7)


def connection(*, own_server: bool = True) -> Mock:
    found = Mock()
    found.execute.return_value.fetchone.return_value = (_UUID, own_server, 1, 2, 3)
    return found


def test_the_folder_of_the_url_is_opened(tmp_path: Path) -> None:
    (tmp_path / "an archive").mkdir()
    settings = RetentionSettings(archive=f"file://{tmp_path}/an%20archive")
    archive = open_archive(connection(), settings, writing=True)
    assert archive.files.shown == f"{tmp_path}/an archive/outbox={_UUID}"


def test_a_copied_database_may_read_and_not_change_it(tmp_path: Path) -> None:
    settings = RetentionSettings(archive=f"file://{tmp_path}")
    assert open_archive(connection(own_server=False), settings, writing=False).outbox_uuid == _UUID
    with pytest.raises(SettingsError, match="this is a copy"):
        open_archive(connection(own_server=False), settings, writing=True)


def test_without_the_extra_it_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "publisher.archive.archive", None)
    with pytest.raises(SettingsError, match=r"pip install 'spark-outbox\[archive\]'"):
        open_archive(connection(), RetentionSettings(archive=f"file://{tmp_path}"), writing=False)


def test_one_that_is_reached_without_tls_is_named() -> None:
    unreadable = Mock()
    unreadable.execute.return_value.fetchone.return_value = None
    settings = RetentionSettings(archive="s3://bucket/prefix", archive_endpoint="http://store.example:9000")
    with capture_logs() as logged, pytest.raises(SchemaError):
        open_archive(unreadable, settings, writing=False)
    assert [(line["event"], line["server"]) for line in logged] == [("connection_unprotected", "the archive")]


def test_without_the_setting_it_is_named() -> None:
    with pytest.raises(SettingsError, match="OUTBOX_RETENTION__ARCHIVE"):
        open_archive(connection(), RetentionSettings(), writing=False)


@pytest.mark.parametrize(
    "value",
    [
        "/var/archive",
        "file:var/archive",
        "file://host/archive",
        "file:///archive?x=1",
        "file:///archive#x",
        "s3://",
        "s3://b",
        "s3://Bucket",
        "s3://key:secret@bucket/archive",
        "s3a://key:secret@bucket/archive",
        "https://key:secret@s3.example.com/bucket",
        "s3://bucket//archive",
        "s3://bucket/../archive",
        "s3://bucket/archive?x=1",
        "s3://bucket/an archive",
        "gs://bucket/archive",
        "file:///archive/../etc",
        "file:///archive/%2e%2e/etc",
        "file:///archive%00",
    ],
)
def test_what_is_no_place_is_refused(value: str) -> None:
    with pytest.raises(ValidationError) as refused:
        RetentionSettings(archive=value)
    assert "secret@" not in str(refused.value.errors(include_input=False))


@pytest.mark.parametrize(
    "values",
    [
        {"archive": "file:///archive", "archive_region": "eu-central-1"},
        {"archive_endpoint": "https://s3.example.com"},
        {"archive": "s3://bucket", "archive_endpoint": "s3.example.com:9000"},
        {"archive": "s3://bucket", "archive_endpoint": "https://key:secret@s3.example.com"},
        {"archive": "s3://bucket", "archive_endpoint": "https://s3.example.com/path"},
        {"archive": "s3://bucket", "archive_endpoint": "https://[12]"},
        {"archive": "s3://bucket", "archive_endpoint": "https://s3.example.com:99999"},
        {"archive": "s3://bucket", "archive_region": "EU Central"},
    ],
)
def test_what_does_not_fit_the_archive_is_refused(values: dict[str, str]) -> None:
    with pytest.raises(ValidationError):
        RetentionSettings.model_validate(values)


def test_a_bucket_and_its_server_are_accepted() -> None:
    found = RetentionSettings(
        archive="s3://a.bucket-1/a/prefix_2/",
        archive_region="eu-central-1",
        archive_endpoint="https://s3.example.com:9000/",
    )
    assert (found.archive, found.archive_endpoint) == (
        "s3://a.bucket-1/a/prefix_2",
        "https://s3.example.com:9000",
    )
    assert RetentionSettings(
        archive="s3://bucket", archive_region="", archive_endpoint=""
    ) == RetentionSettings(archive="s3://bucket")

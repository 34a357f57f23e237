"""What `spark-job init` writes is what the settings and the job take today."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from service.errors import SettingsError
from service.settings import Settings, load_settings
from spark_job.commands.init import init
from spark_job.outputs import transform

COMMENTED = re.compile(r"^#(?=\w+ = )", re.MULTILINE)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working directory."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_settings_are_accepted_and_differ_from_the_defaults_where_the_example_needs_it(
    folder: Path,
) -> None:
    init(folder)
    settings = load_settings(folder / "outbox.toml")
    assert settings.source.topics == ("orders.events",)
    assert settings.session.entry == "item_added"
    assert settings.publisher == Settings().publisher


def test_every_commented_key_is_accepted_too_and_shows_its_default_or_an_example_where_there_is_none(
    folder: Path,
) -> None:
    init(folder)
    text = (folder / "outbox.toml").read_text("utf-8")
    shown = tomllib.loads(COMMENTED.sub("", text))
    settings, written = Settings(**shown), tomllib.loads(text)
    assert len(COMMENTED.findall(text)) > 10
    for section, values in shown.items():
        for key in values.keys() - written.get(section, {}).keys():
            default = getattr(getattr(Settings(), section), key)
            assert not default or getattr(getattr(settings, section), key) == default, (section, key)


def test_the_transform_is_what_the_settings_name(folder: Path) -> None:
    init(folder)
    load_settings(folder / "outbox.toml")
    assert transform.load.__wrapped__("transform:transform").__module__ == "transform"


def test_the_test_of_the_transform_passes_where_it_was_written_and_finds_a_mistake(folder: Path) -> None:
    init(folder)

    def tested() -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider"]
        return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)

    assert "2 passed" in tested().stdout
    transform_file = folder / "transform.py"
    transform_file.write_text(transform_file.read_text().replace('"cents": total', '"cents": total + 1'))
    failed = tested().stdout
    assert '-    "cents": 350' in failed
    assert '+    "cents": 351' in failed


def test_nothing_is_replaced_without_force(folder: Path) -> None:
    mine = folder / "new" / "transform.py"
    init(folder / "new")
    mine.write_text("# mine\n")
    with pytest.raises(SettingsError, match="--force"):
        init(folder / "new")
    assert mine.read_text() == "# mine\n"
    init(folder / "new", force=True)
    assert "def transform" in mine.read_text()


def test_a_folder_that_cannot_be_made_is_named(folder: Path) -> None:
    (folder / "file").touch()
    with pytest.raises(SettingsError, match=r"nothing can be written to .*file/new"):
        init(folder / "file" / "new")

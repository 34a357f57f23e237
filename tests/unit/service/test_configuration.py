"""docs/configuration.md says what the settings are."""

from pathlib import Path

from service.configuration import markdown


def test_the_page_is_what_the_settings_generate() -> None:
    page = Path(__file__).parents[3] / "docs" / "configuration.md"
    assert page.read_text("utf-8") == markdown(), "run `make docs`"

"""docs/configuration.md says what the settings are."""

import pytest

from service.configuration import markdown
from tests.support.paths import ROOT


@pytest.mark.guarantee(125)
def test_the_page_is_what_the_settings_generate() -> None:
    page = ROOT / "docs" / "configuration.md"
    assert page.read_text("utf-8") == markdown(), "run `make docs`"

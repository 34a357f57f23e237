"""What a progress bar names is text, whoever has chosen the name: a consumer's is what its database says."""

import io

import pytest
from rich.console import Console
from rich.progress import Progress

from service.commands.progress import progress_bar


@pytest.mark.parametrize("name", ["a[/x]b", "a\x1b]0;mine\x07b", "a\nb"])
def test_a_name_in_the_description_ends_no_command_and_acts_on_no_terminal(name: str) -> None:
    seen = io.StringIO()
    terminal = Console(file=seen, width=120, force_terminal=True)
    with Progress(*progress_bar().columns, console=terminal, auto_refresh=False) as bar:
        bar.add_task(f"reading consumer {name}", total=5)
        bar.refresh()
    assert f"reading consumer {name.encode('unicode_escape').decode()} " in seen.getvalue()

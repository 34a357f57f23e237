"""docs/runbook.md, section by section, and its commands as an operator runs them."""

import re
import shlex
import subprocess
import sys
from collections.abc import Mapping

import psycopg
from psycopg.rows import dict_row

from tests.support.paths import ROOT
from tests.support.processes.commands import run_command
from tests.support.processes.environment import without_settings

_MODULES = {"publisher": "publisher", "spark-job": "spark_job", "outbox-migrate": "db"}
_FENCED = re.compile(r"^```(sh|sql)\n(.*?)^```", re.MULTILINE | re.DOTALL)
SAYS_SO = (0, 1, 5, 6)
"""Exit codes of a command that did what it is for: all is well, not well, a person must decide, a server does not answer."""


def sections() -> dict[str, str]:
    """{alert: its section}"""
    text = (ROOT / "docs/runbook.md").read_text("utf-8")
    return {part.partition("\n")[0]: part.partition("\n")[2] for part in text.split("\n## ")[1:]}


def commands(alert: str) -> list[list[str]]:
    """The words of each command of the section, variables not yet put in."""
    return [
        shlex.split(line)
        for kind, block in _FENCED.findall(sections()[alert])
        if kind == "sh"
        for line in block.splitlines()
        if line
    ]


def statements(alert: str) -> list[str]:
    """The SQL of the section."""
    return [block for kind, block in _FENCED.findall(sections()[alert]) if kind == "sql"]


def follow(alert: str, variables: Mapping[str, str], addresses: Mapping[str, str]) -> dict[str, str]:
    """Run all commands of the section; return {command: what it printed}.

    `variables`: OUTBOX_ settings; `addresses`: what `$JOB` and `$PUBLISHER` are. A command that is used wrongly, or breaks, is an error.
    """
    printed = {}
    for words in commands(alert):
        for name, value in addresses.items():
            words = [word.replace(f"${name}", value) for word in words]
        done = _run(words, variables)
        said = done.stdout + done.stderr
        assert done.returncode in SAYS_SO, f"{words}: exit code {done.returncode}\n{said}"
        assert said.strip(), f"{words} said nothing"
        assert "Traceback" not in said, said
        printed[" ".join(words)] = said
    return printed


def ask(alert: str, dsn: str) -> list[list[dict[str, object]]]:
    """Run all SQL of the section, as the auditor may; return the rows of each statement."""
    with psycopg.connect(dsn, autocommit=True, row_factory=dict_row) as connection:
        connection.execute("SET default_transaction_read_only = on")
        return [connection.execute(statement.encode()).fetchall() for statement in statements(alert)]


def _run(words: list[str], variables: Mapping[str, str]) -> "subprocess.CompletedProcess[str]":
    if words[0] in _MODULES:
        return run_command(_MODULES[words[0]], *words[1:], variables=variables)
    assert words[:3] == ["python", "-m", "service.probe"], words
    return subprocess.run(
        [sys.executable, *words[1:]],
        env=without_settings(),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )

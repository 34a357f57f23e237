"""`publisher audit` as a command: exit code, reports, servers that are away, and a kill that costs nothing."""

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from devstack.databases import PostgresServer
from service.errors import UnavailableError
from service.settings import KafkaSettings, Settings
from tests.support.outbox.audits import (
    copy_of,
    damage,
    publisher_command,
    run_audit,
)
from tests.support.outbox.batches import Outbox
from tests.support.processes.environment import variables_of, without_settings
from tests.support.processes.publishers import settings_for


def test_a_server_that_is_away_is_no_finding(delivered: tuple[Settings, Outbox], tmp_path: Path) -> None:
    settings, outbox = delivered
    kafka = KafkaSettings(bootstrap_servers="localhost:1", request_timeout_s=1)
    with pytest.raises(UnavailableError, match="Kafka at localhost:1 does not answer"):
        run_audit(settings.model_copy(update={"kafka": kafka}), tmp_path, kafka=True)
    nowhere = settings_for(f"{outbox.dsn}_gone", settings.kafka.bootstrap_servers)
    with pytest.raises(UnavailableError, match="cannot be used"):
        run_audit(nowhere, tmp_path)


@pytest.mark.guarantee(127)
def test_the_command_says_by_its_exit_code_and_its_reports_what_it_found(
    delivered: tuple[Settings, Outbox], postgres: PostgresServer, tmp_path: Path
) -> None:
    clean = publisher_command(delivered[0], "audit", "--kafka")
    assert clean.returncode == 0, clean.stderr
    assert clean.stdout.splitlines()[-1] == "clean"
    with copy_of(postgres, delivered[0]) as settings:
        damage(settings, "DELETE FROM outbox.batch WHERE batch_id = 3")
        file = tmp_path / "report.json"
        ended = publisher_command(settings, "audit", "--json", "--report", str(file))
        assert ended.returncode == 1, ended.stderr
        assert json.loads(ended.stdout) == json.loads(file.read_text("utf-8"))
        assert json.loads(ended.stdout)["checks"][0]["examples"] == ["batch 3 is missing"]


KILLED = """
import os, signal, sys
from publisher.audit.readback import expected, received, state
received.SAVE_S = expected.SAVE_S = 0.0
received.FETCH_MESSAGES = 20
from publisher.audit import scope
scope.RANGE_SESSIONS = 10
saves, save, at = [0], state.save, int(sys.argv[1])
def killing(folder, now):
    saves[0] += 1
    last = saves[0] == at
    if last and saves[0] % 2:
        os.kill(os.getpid(), signal.SIGKILL)
    save(folder, now)
    if last:
        os.kill(os.getpid(), signal.SIGKILL)
state.save = killing
sys.argv = ["publisher", "audit", "--kafka", "--json", "--state", sys.argv[2]]
from publisher.cli import main
main()
"""


@pytest.mark.guarantee(128)
def test_an_audit_that_is_killed_again_and_again_continues_where_it_was_and_finds_the_same(
    delivered: tuple[Settings, Outbox], postgres: PostgresServer, tmp_path: Path
) -> None:
    with copy_of(postgres, delivered[0]) as settings:
        damage(settings, """UPDATE outbox.session_output SET "values"[1] = 'altered' WHERE batch_id = 4""")
        state = tmp_path / "state"
        codes = []
        for at in (2, 1, 5, 0):
            ended = subprocess.run(
                [sys.executable, "-c", KILLED, str(at), str(state)],
                env=without_settings() | variables_of(settings),
                capture_output=True,
                text=True,
                timeout=120,
                check=False,
            )
            codes.append(ended.returncode)
        assert codes == [-signal.SIGKILL] * 3 + [1], ended.stderr
        report = json.loads(ended.stdout)
        assert report["counted"]["records"] == report["counted"]["outputs_found"] == 60
        wrong = {check["name"]: check["count"] for check in report["checks"] if check["result"] == "failed"}
        assert wrong == {"batch_counts": 1, "altered": 5}
        assert not list(state.iterdir())

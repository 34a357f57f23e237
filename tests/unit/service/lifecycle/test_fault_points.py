"""Fault points: inert outside of tests, each fault fires once and exactly where the plan says."""

import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from service.errors import SettingsError
from service.lifecycle import fault_points
from service.lifecycle.fault_points import POINTS, Action, Fault, FaultPlan, InjectedFaultError, reach
from service.settings import load_settings
from tests.support.paths import ROOT

SERVICES = ("spark_job", "publisher")


@pytest.fixture
def plan(tmp_path: Path) -> Iterator[FaultPlan]:
    """The plan that this process follows."""
    made = FaultPlan(tmp_path / "faults.json")
    fault_points.arm(made.file)
    yield made
    fault_points.arm(None)


def test_nothing_happens_at_a_point_unless_a_test_armed_it(plan: FaultPlan) -> None:
    plan.write(Fault("sink.after_lock", Action.RAISE))
    fault_points.arm(None)
    reach("sink.after_lock")
    assert not fault_points.is_armed()
    assert plan.fired() == []


def test_a_fault_fires_once_at_its_point_and_the_next_one_after_it(plan: FaultPlan) -> None:
    first, second = Fault("sink.after_copy", Action.RAISE), Fault("sink.after_lock", Action.RAISE)
    plan.write(first, second)
    reach("sink.after_lock")
    with pytest.raises(InjectedFaultError, match=r"sink\.after_copy \(after COPY\)"):
        reach("sink.after_copy")
    reach("sink.after_copy")
    with pytest.raises(InjectedFaultError):
        reach("sink.after_lock")
    assert [fault for fault, _ in plan.fired()] == [first, second]
    assert plan.pending() == []


def test_hits_are_counted_from_the_moment_at_which_the_fault_is_the_next_one(plan: FaultPlan) -> None:
    plan.write(Fault("sink.after_lock", Action.RAISE), Fault("sink.during_copy", Action.RAISE, hit=3))
    reach("sink.during_copy")
    with pytest.raises(InjectedFaultError):
        reach("sink.after_lock")
    reach("sink.during_copy")
    reach("sink.during_copy")
    with pytest.raises(InjectedFaultError):
        reach("sink.during_copy")


def test_a_pass_does_nothing_but_let_the_next_fault_count_from_there(plan: FaultPlan) -> None:
    plan.write(Fault("sink.during_copy", Action.PASS), Fault("sink.after_lock", Action.RAISE))
    reach("sink.after_lock")
    reach("sink.during_copy")
    with pytest.raises(InjectedFaultError):
        reach("sink.after_lock")


def test_a_kill_is_sigkill_to_the_process_and_fires_in_one_life_only(plan: FaultPlan) -> None:
    plan.write(Fault("sink.after_commit", Action.KILL))
    program = f"from service.lifecycle import fault_points as f; f.arm(f.Path({str(plan.file)!r})); f.reach('sink.after_commit')"
    lives = [
        subprocess.run([sys.executable, "-c", program], cwd=ROOT, check=False).returncode for _ in range(2)
    ]
    assert lives == [-9, 0]
    assert len(plan.fired()) == 1


def test_a_process_that_is_held_continues_by_the_new_plan_which_may_begin_at_the_same_point(
    plan: FaultPlan,
) -> None:
    hold = Fault("start.begins", Action.HOLD)
    plan.write(hold)
    failed: list[InjectedFaultError] = []

    def run() -> None:
        try:
            reach(hold.point)
        except InjectedFaultError as error:
            failed.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    for held in range(2):  # a plan of the same text is another plan
        while plan.pending():
            assert thread.is_alive()
        thread.join(0.2)
        assert thread.is_alive()
        plan.write(hold if held == 0 else Fault(hold.point, Action.RAISE))
    thread.join(30)
    assert len(failed) == 1
    assert [fault.action for fault, _ in plan.fired()] == [Action.HOLD, Action.HOLD, Action.RAISE]


def test_a_process_that_is_held_continues_by_a_plan_that_came_at_once(
    plan: FaultPlan, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The test's next plan may be there before the process that took the fault has looked at anything again."""
    plan.write(Fault("start.begins", Action.HOLD))
    replace = Path.replace

    def replace_twice(file: Path, target: Path) -> Path:
        monkeypatch.setattr(Path, "replace", replace)
        replaced = replace(file, target)
        FaultPlan(plan.file).write()
        return replaced

    monkeypatch.setattr(Path, "replace", replace_twice)
    held = threading.Thread(target=reach, args=("start.begins",), daemon=True)
    held.start()
    held.join(30)
    assert not held.is_alive()
    assert [fault.action for fault, _ in plan.fired()] == [Action.HOLD]


def test_an_unknown_point_is_refused_with_the_nearest_known_one(plan: FaultPlan) -> None:
    with pytest.raises(
        SettingsError, match=r"unknown fault point 'sink\.after_lok': did you mean 'sink\.after_lock'"
    ):
        plan.write(Fault("sink.after_lok", Action.KILL))
    plan.file.write_text('[{"point": "sink.after_cpy", "action": "kill", "hit": 1}]', "utf-8")
    with pytest.raises(SettingsError, match=r"did you mean 'sink\.after_copy'"):
        reach("sink.after_lock")


@pytest.mark.guarantee(115)
@pytest.mark.parametrize("dsn", ["postgresql://localhost/outbox", "postgresql://localhost", "dbname=latest_"])
def test_faults_are_refused_for_every_database_that_is_not_a_tests(
    dsn: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OUTBOX_TESTING__FAULT_FILE", "/anywhere")
    monkeypatch.setenv("OUTBOX_POSTGRES__DSN", dsn)
    with pytest.raises(SettingsError, match="makes the service die on purpose"):
        load_settings()
    monkeypatch.setenv("OUTBOX_POSTGRES__DSN", "postgresql://localhost/test_1")
    assert load_settings().testing.fault_file == Path("/anywhere")
    # The login of retention may lead elsewhere.
    monkeypatch.setenv("OUTBOX_RETENTION__DSN", dsn)
    with pytest.raises(SettingsError, match="makes the service die on purpose"):
        load_settings()


def test_every_point_is_passed_by_a_service_and_every_point_of_a_service_is_known() -> None:
    sources = [file.read_text("utf-8") for service in SERVICES for file in (ROOT / service).rglob("*.py")]
    passed = {name for text in sources for name in re.findall(r'\breach\("([^"]+)"\)', text)}
    assert passed == set(POINTS)

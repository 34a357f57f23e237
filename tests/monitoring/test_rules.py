"""The shipped files as Prometheus' own tool sees them: the rules are well-formed, and those with large thresholds fire when they should."""

import subprocess
from pathlib import Path

import pytest

from tests.support.monitoring.prometheus import RULES, program
from tests.support.paths import ROOT

pytestmark = pytest.mark.monitoring

CASES = Path(__file__).with_name("rules.test.yml")


def promtool(*arguments: object) -> str:
    """Run it; return what it printed."""
    done = subprocess.run(
        [program("promtool"), *map(str, arguments)], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_rules_and_configuration_are_well_formed() -> None:
    assert "SUCCESS" in promtool("check", "rules", RULES)
    assert "SUCCESS" in promtool(
        "check", "config", "--syntax-only", ROOT / "deploy/monitoring/prometheus.yml"
    )


def test_alerts_fire_on_the_numbers_of_their_fault_and_on_no_others() -> None:
    assert "SUCCESS" in promtool("test", "rules", CASES)

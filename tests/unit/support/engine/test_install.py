"""What is installed is said before, and the machine's services are left as they are."""

from pathlib import Path

import pytest

from tests.support.engine import install as module
from tests.support.engine.errors import EngineError
from tests.support.engine.install import install, nothing_starts


@pytest.fixture
def policy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the machine's policy would be."""
    path = tmp_path / "policy-rc.d"
    monkeypatch.setattr(module, "_POLICY", path)
    return path


@pytest.fixture
def asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, policy: Path) -> Path:
    """What an `apt-get` that only pretends was asked, and what the policy was at that moment."""
    asked = tmp_path / "asked"
    apt = tmp_path / "apt-get"
    apt.write_text(
        f'#!/bin/sh\n{policy}; echo "$? $*" >> {asked}\nfor last; do :; done\n[ $last != broken ] || {{ echo no such; exit 100; }}\n'
    )
    apt.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/usr/bin")
    return asked


def test_what_is_installed_is_said_and_no_service_starts(asked: Path, policy: Path) -> None:
    said: list[str] = []
    install(["docker.io", "iptables"], said.append)
    lock = "101 -qq -o DPkg::Lock::Timeout=300"
    assert asked.read_text().splitlines() == [
        f"{lock} update",
        f"{lock} install --no-install-recommends docker.io iptables",
    ]
    [line] = said
    assert "Installing docker.io, iptables" in line
    assert "OUTBOX_TEST_ENGINE=none" in line
    assert not policy.exists()


def test_a_failure_is_told_and_the_policy_goes_all_the_same(asked: Path, policy: Path) -> None:
    with pytest.raises(EngineError, match="no such"):
        install(["broken"], lambda line: None)
    assert not policy.exists()


def test_a_policy_that_is_there_stays_and_decides(policy: Path) -> None:
    policy.write_text("#!/bin/sh\nexit 0\n")
    with nothing_starts(policy):
        assert policy.read_text() == "#!/bin/sh\nexit 0\n"
    assert policy.exists()


def test_the_policy_of_a_killed_installation_goes_with_the_next(policy: Path) -> None:
    with nothing_starts(policy):
        left = policy.read_text()
    policy.write_text(left)
    with nothing_starts(policy):
        pass
    assert not policy.exists()

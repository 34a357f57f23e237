"""An engine of our own ends with its run, whatever happens to that, and leaves nothing to the next."""

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from tests.support.containers.fixtures import cannot
from tests.support.engine.debian.system import base_system
from tests.support.engine.engine import OWN_VARIABLE, engine_cache, open_engine, prepare
from tests.support.engine.errors import EngineError
from tests.support.engine.stand_ins import base_hash
from tests.support.paths import ROOT

pytestmark = pytest.mark.containers

_RUN = """
import sys
from tests.support.engine.engine import open_engine
from tests.support.engine.stand_ins import base_image

with open_engine() as engine:
    network = engine.run("network", "create", "left").stdout[:12]
    volume = "--volume=left:/data"
    engine.run("run", "--detach", "--restart=always", "--network=left", volume, base_image(engine), "sleep", "infinity")
    print(engine.environment["DOCKER_HOST"], network, flush=True)
    sys.stdin.read()
"""
_END_TIMEOUT_S = 60.0


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache of the test's own, so that no other run takes its place, with the base system of the user's."""
    try:
        prepare(os.environ)
        tar = base_system(engine_cache(), base_hash())
    except EngineError as error:
        cannot(error)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv(OWN_VARIABLE, "own")
    engine_cache().mkdir(parents=True)
    (engine_cache() / tar.name).symlink_to(tar)
    return tmp_path


@pytest.mark.timeout(900)
def test_kill_9_of_the_run_ends_the_engine_and_its_containers_and_the_next_finds_nothing(cache: Path) -> None:
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    run = subprocess.Popen(
        [sys.executable, "-c", _RUN],
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with run:
        assert run.stdout is not None
        address, network = run.stdout.readline().split()
        processes = psutil.Process(run.pid).children(recursive=True)
        names = {process.name() for process in processes}
        run.send_signal(signal.SIGKILL)
    _, alive = psutil.wait_procs(processes, timeout=_END_TIMEOUT_S)
    bridge = Path("/sys/class/net") / f"br-{network}"
    assert bridge.exists(), "of what remains after kill -9; without it the last line shows nothing"
    assert address.startswith("unix://")
    assert {"dockerd", "containerd", "sleep"} <= names
    assert alive == []
    assert str(cache) not in Path("/proc/self/mounts").read_text()
    with open_engine() as engine:
        assert engine.is_ours
        assert not Path(address.removeprefix("unix://")).parent.exists()
        assert engine.run("ps", "--all", "--quiet").stdout == ""
        for kind in ("network", "volume"):
            assert engine.run(kind, "ls", "--filter", "name=left", "--quiet").stdout == ""
        layers = list(engine_cache().glob("engine-*/image/*/layerdb/mounts/*"))
        assert layers == [], "a killed container's files"
        of_its_own = engine.run("network", "create", "of-its-own").stdout[:12]
        assert Path(f"/sys/class/net/br-{of_its_own}").exists()
    assert not bridge.exists()
    assert not Path(f"/sys/class/net/br-{of_its_own}").exists()
    shutil.rmtree(cache)

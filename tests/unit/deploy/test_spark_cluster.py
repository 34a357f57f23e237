"""deploy/spark-cluster.yml: nobody without the secret speaks to the cluster, and nobody but its members can read the secret."""

import stat
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from structlog.testing import capture_logs

from service.kafka.transport import SPARK_CHANNELS, name_open_cluster
from tests.support.paths import ROOT

CLUSTER: Any = yaml.safe_load((ROOT / "deploy/spark-cluster.yml").read_text("utf-8"))
SERVICES: dict[str, Any] = CLUSTER["services"]
MEMBERS = ("spark-master", "spark-worker", "spark-job")
SECRET_FOLDER = "/run/spark-secret"
_SCRIPT = "deploy/secrets/spark.sh"


def make_secret(folder: Path) -> Path:
    """What the service `spark-secret` does."""
    subprocess.run(["sh", ROOT / _SCRIPT, folder], check=True)
    return folder / "spark-defaults.conf"


@pytest.mark.parametrize("name", MEMBERS)
def test_each_member_waits_for_the_secret_and_reads_it_from_the_volume(name: str) -> None:
    service = SERVICES[name]
    assert f"spark-secret:{SECRET_FOLDER}:ro" in service["volumes"]
    assert service["environment"]["SPARK_CONF_DIR"] == SECRET_FOLDER
    assert service["depends_on"]["spark-secret"] == {"condition": "service_completed_successfully"}


def test_the_secret_is_made_where_nothing_else_is_and_by_the_user_who_reads_it() -> None:
    maker = SERVICES["spark-secret"]
    assert maker["network_mode"] == "none"
    assert maker["volumes"] == ["spark-secret:/var/lib/spark-job", f"./{_SCRIPT}:/make-secret.sh:ro"]
    assert maker["entrypoint"] == ["sh", "/make-secret.sh", "/var/lib/spark-job"]
    assert {SERVICES[name]["user"] for name in ("spark-secret", *MEMBERS[:2])} == {"10001:10001"}


def test_nothing_that_docker_inspect_shows_has_a_secret() -> None:
    for service in SERVICES.values():
        shown = str([service.get(part) for part in ("environment", "command", "entrypoint", "labels")])
        assert "spark.authenticate" not in shown


def test_the_cluster_authenticates_and_encrypts_and_the_job_knows_it(tmp_path: Path) -> None:
    file = make_secret(tmp_path)
    properties = dict(line.split() for line in file.read_text("utf-8").splitlines())
    assert len(properties.pop("spark.authenticate.secret")) == 64
    assert properties == SPARK_CHANNELS | {
        "spark.ui.killEnabled": "false",
        "spark.master.rest.enabled": "false",
    }
    job = SERVICES["spark-job"]["environment"]
    options = yaml.safe_load(job["OUTBOX_JOB__SPARK_OPTIONS"])
    with capture_logs() as logged:
        name_open_cluster(
            job["OUTBOX_JOB__MASTER"], properties | {"spark.authenticate.secret": "s"} | options
        )
        assert logged == []
        name_open_cluster(job["OUTBOX_JOB__MASTER"], options)
    assert [line["server"] for line in logged] == ["Spark's cluster"]


def test_its_owner_alone_reads_the_secret_and_a_second_start_keeps_it(tmp_path: Path) -> None:
    (tmp_path / ".new").write_text("cut off")
    file = make_secret(tmp_path)
    assert stat.S_IMODE(file.stat().st_mode) == 0o400
    before = file.read_text("utf-8")
    assert make_secret(tmp_path).read_text("utf-8") == before
    assert [path.name for path in tmp_path.iterdir()] == [file.name]
    other = tmp_path / "other"
    other.mkdir()
    assert make_secret(other).read_text("utf-8") != before

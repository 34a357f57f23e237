"""The wheel works in an environment and in folders that have nothing of the checkout."""

import json
import subprocess
import uuid
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from db.migrate import HEAD
from devstack.databases import PostgresServer
from tests.support.paths import ROOT
from tests.support.releases import Installed, install

PACKAGES = ("spark_job", "publisher", "outbox_consumer", "contract", "service", "db", "devstack")
COMMANDS = ("spark-job", "publisher", "outbox-migrate", "devstack")
LEFT_OUT = ("Dockerfile", "README.md")
MOVED = ("publisher", "contract", "service", "db", "devstack")
"""Names that anybody may have: in the wheel they are below `spark_outbox`."""
IMPORT_ALL = """
import importlib, pathlib, sys, sysconfig
packages = pathlib.Path(sysconfig.get_path("purelib"))
roots = [packages / name for name in ("spark_job", "outbox_consumer", "spark_outbox")]
paths = [path.relative_to(packages) for root in roots for path in root.rglob("*.py")]
names = {".".join(path.with_suffix("").parts).removesuffix(".__init__") for path in paths}
# Alembic runs the migrations; the other two are for programs and for a folder with a transform.
names = {name for name in names if ".migrations" not in name and not name.endswith((".__main__", ".starter_test"))}
for name in sorted(names):
    importlib.import_module(name)
print(len(names), [name for name in ("publisher", "contract", "service", "db", "devstack") if name in sys.modules])
"""


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Installed:
    """This tree's wheel in an environment of its own."""
    return install(ROOT, tmp_path_factory.mktemp("package"))


@pytest.fixture
def empty_database(postgres: PostgresServer) -> Iterator[str]:
    """DSN of a database without an outbox."""
    name = f"test_{uuid.uuid4().hex}"
    yield postgres.create_database(name)
    postgres.drop_database(name)


def test_the_wheel_has_every_file_of_the_packages_and_nothing_else(installed: Installed) -> None:
    """SQL, migrations, the lists of jars, the log's settings and the mark that the modules are typed, too."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", *PACKAGES],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    expected = {
        f"spark_outbox/{name}" if name.startswith(tuple(f"{each}/" for each in MOVED)) else name
        for name in listed.stdout.split()
        if not name.endswith(LEFT_OUT)
    }
    with zipfile.ZipFile(installed.wheel) as archive:
        found = {name for name in archive.namelist() if ".dist-info/" not in name}
    assert found == expected
    assert {
        "spark_job/py.typed",
        "spark_job/spark/jars.lock",
        "spark_outbox/service/outbox.schema.json",
    } <= found


def test_the_wheel_takes_no_name_that_anybody_may_have(installed: Installed, tmp_path: Path) -> None:
    """Every module can be imported, and none imports another one by the name that it has in a checkout."""
    with zipfile.ZipFile(installed.wheel) as archive:
        names = {name.partition("/")[0] for name in archive.namelist() if ".dist-info/" not in name}
    assert names == {"spark_job", "outbox_consumer", "spark_outbox"}
    done = installed.run("python", "-c", IMPORT_ALL, folder=tmp_path)
    assert done.returncode == 0, done.stderr
    number, _, others = done.stdout.strip().partition(" ")
    assert int(number) > 300
    assert others == "[]"


def test_modules_run_under_their_new_names(installed: Installed, tmp_path: Path) -> None:
    asked = installed.run("python", "-m", "spark_outbox.service.probe", folder=tmp_path)
    assert asked.stderr == "usage: python -m spark_outbox.service.probe URL\n"


def test_a_users_own_packages_may_have_these_names(
    installed: Installed, empty_database: str, tmp_path: Path
) -> None:
    """They are in the folder from which a command runs, and so before everything else on a program's path."""
    for name in MOVED:
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text("raise RuntimeError('this is the user’s own')\n")
    variables = {"OUTBOX_POSTGRES__DSN": empty_database, "PYTHONPATH": str(tmp_path)}
    up = installed.run("outbox-migrate", "up", folder=tmp_path, variables=variables)
    assert up.returncode == 0, up.stderr
    assert installed.run("publisher", "status", folder=tmp_path, variables=variables).returncode != 10
    for command in COMMANDS:
        assert installed.run(command, "--help", folder=tmp_path, variables=variables).returncode == 0


@pytest.mark.parametrize("command", COMMANDS)
def test_each_command_explains_itself_and_says_its_version(
    installed: Installed, command: str, tmp_path: Path
) -> None:
    helped = installed.run(command, "--help", folder=tmp_path)
    assert (helped.returncode, helped.stderr) == (0, "")
    assert command in helped.stdout
    said = installed.run(command, "--version", folder=tmp_path)
    assert (said.stdout, said.stderr) == (f"{command} {installed.version}\n", "")


@pytest.mark.parametrize("command", COMMANDS)
def test_the_shell_completes_each_command(installed: Installed, command: str, tmp_path: Path) -> None:
    """What the script of --show-completion asks when somebody presses TAB after `COMMAND `."""
    script = installed.run(command, "--show-completion", "bash", folder=tmp_path)
    variable = f"_{command.upper().replace('-', '_')}_COMPLETE"
    assert f"{variable}=complete_bash" in script.stdout
    words = {variable: "complete_bash", "COMP_WORDS": f"{command} ", "COMP_CWORD": "1"}
    proposed = installed.run(command, folder=tmp_path, variables=words)
    assert "status" in proposed.stdout.split(), proposed


def test_a_pipeline_begins_in_an_empty_folder(
    installed: Installed, empty_database: str, tmp_path: Path
) -> None:
    """Init, the transform's own test, the schema out of the wheel, and commands that read the settings which init wrote."""
    variables = {"OUTBOX_POSTGRES__DSN": empty_database}

    def run(command: str, *arguments: str, code: int = 0) -> str:
        done = installed.run(command, *arguments, folder=tmp_path, variables=variables)
        assert done.returncode == code, (
            f"{command} {arguments}: {done.returncode}\n{done.stdout}\n{done.stderr}"
        )
        return done.stderr if code > 1 else done.stdout

    assert "outbox-migrate up" in run("spark-job", "init")
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "outbox.schema.json",
        "outbox.toml",
        "test_transform.py",
        "transform.py",
    ]
    assert "2 passed" in run("python", "-m", "pytest")
    assert HEAD in run("outbox-migrate", "up")
    assert json.loads(run("outbox-migrate", "status", "--json"))["current"] is True
    assert "`spark-job run` starts one" in run("spark-job", "status", code=1)
    assert "--force" in run("spark-job", "init", code=2)


def test_mypy_reads_the_types_of_the_wheel(installed: Installed, tmp_path: Path) -> None:
    """Strictly, it says nothing of what init writes, and finds an output that cannot be sent."""
    assert installed.run("spark-job", "init", folder=tmp_path).returncode == 0
    (tmp_path / "wrong.py").write_text(
        'from spark_job import OutputEvent\n\nOutputEvent("orders.totals", 350)\n'
    )
    checked = installed.run(
        "python", "-m", "mypy", "--strict", "transform.py", "test_transform.py", "wrong.py", folder=tmp_path
    )
    assert [line.split(":")[0] for line in checked.stdout.splitlines()] == [
        "wrong.py",
        "Found 1 error in 1 file (checked 3 source files)",
    ]

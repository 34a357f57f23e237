"""What executors are sent: all that a task imports of ours, and the transform's module, wherever that comes from."""

import subprocess
import sys
from pathlib import Path

import pytest

from spark_job.spark.shipping import modules, zipped


def sent(function: str) -> dict[str, Path]:
    """{name in the zip: file}"""
    return dict(modules(function))


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that Python imports from."""
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path


def test_our_packages_are_sent_once_also_where_the_transform_is_one_of_ours() -> None:
    names = [name for name, _ in modules("spark_job.api:Session")]
    assert len(names) == len(set(names))
    assert {"spark_job/assembly/task.py", "service/errors.py", "contract/session_keys.py"} <= set(names)


def test_a_transform_in_a_file_of_its_own_is_sent(folder: Path) -> None:
    (folder / "own_shop.py").write_text("")
    assert sent("own_shop:transform")["own_shop.py"] == folder / "own_shop.py"


@pytest.mark.parametrize("init", [True, False], ids=["package", "folder without __init__.py"])
def test_a_package_is_sent_whole(folder: Path, init: bool) -> None:
    package = folder / "own_pages" / "deeper"
    package.mkdir(parents=True)
    (package / "shop.py").write_text("")
    (package.parent / "prices.py").write_text("")
    if init:
        (package / "__init__.py").write_text("")
        (package.parent / "__init__.py").write_text("")
    assert {"own_pages/deeper/shop.py", "own_pages/prices.py"} <= set(sent("own_pages.deeper.shop:transform"))


def test_what_is_installed_and_what_python_brings_is_not_sent() -> None:
    ours = sent("spark_job.api:Session")
    assert sent("orjson:dumps") == ours
    assert sent("json:dumps") == ours


def test_the_zip_is_the_same_for_the_same_code_and_a_task_can_be_imported_from_it_alone(
    folder: Path,
) -> None:
    (folder / "own_names").mkdir()
    (folder / "own_names" / "shop.py").write_text("def transform(session):\n    return []\n")
    archive = folder / "sent.zip"
    archive.write_bytes(zipped(modules("own_names.shop:transform")))
    assert archive.read_bytes() == zipped(modules("own_names.shop:transform"))
    # Without the checkout and the folder on the path.
    script = (
        "import spark_job.assembly.task, spark_job.outputs.transform as t\n"
        "print(spark_job.assembly.task.__file__, t.fingerprint(t.load('own_names.shop:transform')))"
    )
    command = [sys.executable, "-P", "-c", f"import sys; sys.path.insert(0, {str(archive)!r})\n{script}"]
    ran = subprocess.run(command, capture_output=True, text=True, cwd="/", env={})
    assert ran.returncode == 0, ran.stderr
    where, fingerprint = ran.stdout.split()
    assert where.startswith(str(archive))
    from spark_job.outputs import transform

    assert fingerprint == transform.fingerprint(transform.load("own_names.shop:transform"))

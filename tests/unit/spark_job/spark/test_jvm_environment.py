"""The JVM finds what it needs where the machine does not give it, and nothing is changed where the machine does."""

import os
import pwd
import shutil
import subprocess
from pathlib import Path
from types import SimpleNamespace

import pyspark
import pytest

from spark_job.spark import jvm_environment
from spark_job.spark.jvm_environment import choose_spark_home, option, temporary_files, user_options

OWN = Path(pyspark.__file__).parent
NAMELESS = Path(jvm_environment.__file__).parent / "nameless_user"


def spark(home: Path, version: str) -> Path:
    for name in ("bin/spark-submit", f"jars/spark-core_2.13-{version}.jar"):
        (home / name).parent.mkdir(parents=True)
        (home / name).touch()
    return home


def test_a_spark_home_of_another_version_or_none_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for stale in (tmp_path / "gone", spark(tmp_path / "old", "3.5.1")):
        monkeypatch.setenv("SPARK_HOME", str(stale))
        choose_spark_home()
        assert os.environ["SPARK_HOME"] == str(OWN)
    same = spark(tmp_path / "same", pyspark.__version__)
    monkeypatch.setenv("SPARK_HOME", str(same))
    choose_spark_home()
    assert os.environ["SPARK_HOME"] == str(same)
    monkeypatch.delenv("SPARK_HOME")
    choose_spark_home()
    assert "SPARK_HOME" not in os.environ


def test_temporary_files_are_where_native_code_may_be_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, cache = tmp_path / "work", tmp_path / "my cache"
    folder.mkdir()
    assert temporary_files(folder, str(cache)) == folder
    assert not cache.exists()
    noexec = {folder}
    monkeypatch.setattr(
        os, "statvfs", lambda path: SimpleNamespace(f_flag=os.ST_NOEXEC if path in noexec else 0)
    )
    assert temporary_files(folder, str(cache)) == cache / "jvm"
    left, new = cache / "jvm" / "left.so", cache / "jvm" / "new.so"
    for file in (left, new):
        file.touch()
    os.utime(left, (0, 0))
    assert temporary_files(folder, str(cache)) == cache / "jvm"
    assert (left.exists(), new.exists()) == (False, True)
    noexec.add(cache / "jvm")
    assert temporary_files(folder, str(cache)) == folder


def test_no_native_code_is_loaded_from_where_others_may_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, cache, theirs = tmp_path / "work", tmp_path / "cache", tmp_path / "theirs"
    for each in (folder, cache, theirs):
        each.mkdir()
    monkeypatch.setattr(
        os, "statvfs", lambda path: SimpleNamespace(f_flag=os.ST_NOEXEC if path == folder else 0)
    )
    (theirs / "old").touch()
    os.utime(theirs / "old", (0, 0))
    jvm = cache / "jvm"
    jvm.symlink_to(theirs)
    assert temporary_files(folder, str(cache)) == folder
    assert (theirs / "old").exists()
    jvm.unlink()
    jvm.mkdir()
    jvm.chmod(0o777)
    assert temporary_files(folder, str(cache)) == jvm
    assert jvm.stat().st_mode & 0o777 == 0o700
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    assert temporary_files(folder, str(cache)) == folder


def test_a_user_without_a_name_gets_one_and_a_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert user_options(tmp_path) == []

    def unknown(_: int) -> None:
        raise KeyError

    monkeypatch.setattr(pwd, "getpwuid", unknown)
    for home in ("", "?", "/nowhere"):
        monkeypatch.setenv("HOME", home)
        options = user_options(tmp_path)
        assert f"-Duser.home={tmp_path}" in options
    assert f"-Duser.name=uid-{os.geteuid()}" in options
    (patch,) = [each.partition("=")[2] for each in options if each.startswith("--patch-module=")]
    assert patch == f"jdk.security.auth={tmp_path / 'nameless-user'}"
    assert (tmp_path / "nameless-user/com/sun/security/auth/module/UnixSystem.class").is_file()


def test_the_class_for_such_a_user_is_what_its_source_gives(tmp_path: Path) -> None:
    """It is compiled once, because no machine that runs the job need have a compiler."""
    javac = shutil.which("javac")
    assert javac is not None, "a JDK is needed for the tests"
    source = tmp_path / "source" / "com/sun/security/auth/module/UnixSystem.java"
    source.parent.mkdir(parents=True)
    shutil.copy(NAMELESS / "UnixSystem.java", source)
    patch = f"jdk.security.auth={tmp_path / 'source'}"
    command = [javac, "-source", "17", "-target", "17", "-nowarn", "--patch-module", patch, "-g:none"]
    subprocess.run([*command, "-d", str(tmp_path), str(source)], check=True, capture_output=True, timeout=120)
    made = tmp_path / "com/sun/security/auth/module/UnixSystem.class"
    assert made.read_bytes() == (NAMELESS / "UnixSystem.class").read_bytes()


def test_an_option_keeps_its_spaces_and_quotes() -> None:
    assert option('-Dx=/my "own" \\ folder') == '"-Dx=/my \\"own\\" \\\\ folder"'

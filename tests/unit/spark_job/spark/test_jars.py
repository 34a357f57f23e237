"""What the jar cache promises, without a network: Ivy is replaced by a Java that copies prepared files."""

import hashlib
import os
import stat
from importlib.resources import files
from pathlib import Path

import pytest

from service.errors import ExhaustedError, OutboxError, SettingsError, SparkStartError
from spark_job.spark import ivy, jars
from spark_job.spark.ivy import Root
from spark_job.spark.jars import Jar, JarsError

CONTENT = b"not really a jar"
SHA256 = hashlib.sha256(CONTENT).hexdigest()
OTHER_SHA256 = hashlib.sha256(b"something else").hexdigest()
COORDINATE = "org.example:thing_2.13:1.2.3"

# Stands where java is expected: tells a version, and as "Ivy" puts the prepared jars where -retrieve points.
FAKE_JAVA = """\
#!/bin/sh
if [ "$1" = -version ]; then echo 'openjdk version "{version}"' >&2; exit 0; fi
echo run >> "{served}/calls"
for last; do :; done
target=$(dirname "$last")
mkdir -p "$target"
cp "{served}"/*.jar "$target" || exit 1
echo "[SUCCESSFUL ]"
"""


@pytest.fixture
def served(tmp_path: Path) -> Path:
    """Folder with the jars that the fake repository serves; `calls` in it grows with every download."""
    folder = tmp_path / "served"
    folder.mkdir()
    return folder


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, served: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache and a fake Java 17."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv(ivy.SETTINGS_VARIABLE, raising=False)
    monkeypatch.setenv("JAVA_HOME", str(_install_java(tmp_path / "java", "17.0.15", served)))
    return tmp_path / "cache" / "spark-outbox" / "jars"


def _install_java(home: Path, version: str, served: Path) -> Path:
    return _install(home, FAKE_JAVA.format(version=version, served=served).encode())


def _install(home: Path, content: bytes) -> Path:
    """Make the file bin/java of a home, which may be run."""
    (home / "bin").mkdir(parents=True)
    java = home / "bin" / "java"
    java.write_bytes(content)
    java.chmod(java.stat().st_mode | stat.S_IXUSR)
    return home


def _serve(served: Path, content: bytes) -> None:
    (served / "org.example!!thing_2.13!!1.2.3.jar").write_bytes(content)


def _lock(folder: Path, sha256: str = SHA256) -> Path:
    path = folder / "jars.lock"
    path.write_text(f"# root {COORDINATE}\n\n{COORDINATE}  thing_2.13-1.2.3.jar  {sha256}\n")
    return path


def _downloads(served: Path) -> int:
    calls = served / "calls"
    return len(calls.read_text().splitlines()) if calls.exists() else 0


def test_a_lock_file_is_read_as_written(tmp_path: Path) -> None:
    text = _lock(tmp_path).read_text()
    assert jars.parse_lock(text, source="it") == [Jar(COORDINATE, "thing_2.13-1.2.3.jar", SHA256)]
    assert jars.parse_roots(text + "# root a:b:1 +dependencies\n") == [
        Root(COORDINATE, False),
        Root("a:b:1", True),
    ]


@pytest.mark.parametrize(
    "line",
    [
        f"{COORDINATE}  thing.jar",
        f"{COORDINATE}  thing.jar  {SHA256[:-1]}",
        f"org.example:thing  thing.jar  {SHA256}",
        f"{COORDINATE}  ../../thing.jar  {SHA256}",
        f"{COORDINATE}  thing.zip  {SHA256}",
    ],
)
def test_a_malformed_line_is_refused_with_its_number(line: str) -> None:
    with pytest.raises(JarsError, match=r"some\.lock, line 2: .* --relock"):
        jars.parse_lock(f"# head\n{line}\n", source="some.lock")


def test_the_lock_files_of_this_repository_name_no_address_and_pin_their_roots() -> None:
    for package in ("spark_job.spark", "devstack"):
        text = (files(package) / "jars.lock").read_text(encoding="utf-8")
        assert "//" not in text
        pinned = {jar.coordinate for jar in jars.parse_lock(text, source=package)}
        assert {root.coordinate for root in jars.parse_roots(text)} <= pinned


def test_a_jar_is_downloaded_once_and_then_taken_from_the_cache(
    tmp_path: Path, cache: Path, served: Path
) -> None:
    _serve(served, CONTENT)
    seen: list[tuple[int, int]] = []
    first = jars.resolve(_lock(tmp_path), progress=lambda done, total: seen.append((done, total)))
    assert first == jars.resolve(_lock(tmp_path))
    assert [path.read_bytes() for path in first] == [CONTENT]
    assert first[0].is_relative_to(cache)
    assert first[0].name == "thing_2.13-1.2.3.jar"
    assert _downloads(served) == 1
    assert seen == [(0, 1), (1, 1)]


def test_a_cache_that_has_every_jar_is_only_read(tmp_path: Path, cache: Path, served: Path) -> None:
    _serve(served, CONTENT)
    (jar,) = jars.resolve(_lock(tmp_path))
    (cache / ".lock").unlink()
    assert jars.resolve(_lock(tmp_path)) == [jar]
    # In an image the cache is nobody's to write: not even the lock may be taken there.
    assert not (cache / ".lock").exists()


def test_a_user_without_a_home_is_told_where_jars_can_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """OpenShift gives a container such a user, with HOME=/ or without HOME."""
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.delenv("HOME")
    monkeypatch.setattr("pwd.getpwuid", dict[int, object]().__getitem__)
    with pytest.raises(JarsError, match=f"user {os.geteuid()} has no home folder.*Set XDG_CACHE_HOME"):
        jars.resolve(_lock(tmp_path))
    # Nobody can write there, not even root.
    monkeypatch.setenv("HOME", "/sys")
    with pytest.raises(JarsError, match=r"/sys/\.cache/spark-outbox/jars.*Set XDG_CACHE_HOME"):
        jars.resolve(_lock(tmp_path))


def test_a_jar_with_another_checksum_is_refused_and_not_kept(
    tmp_path: Path, cache: Path, served: Path
) -> None:
    _serve(served, CONTENT)
    with pytest.raises(JarsError, match=f"{COORDINATE}: .*{SHA256}, but {OTHER_SHA256} is pinned"):
        jars.resolve(_lock(tmp_path, OTHER_SHA256))
    assert not list(cache.rglob("*.jar"))


def test_a_damaged_jar_in_the_cache_is_replaced(tmp_path: Path, served: Path) -> None:
    _serve(served, CONTENT)
    (path,) = jars.resolve(_lock(tmp_path))
    path.write_bytes(b"cut sho")
    assert jars.resolve(_lock(tmp_path)) == [path]
    assert path.read_bytes() == CONTENT


def test_a_failed_download_names_the_ways_out_and_leaves_nothing_behind(tmp_path: Path, cache: Path) -> None:
    with pytest.raises(JarsError, match=r"online\?.*SPARK_OUTBOX_IVY_SETTINGS"):
        jars.resolve(_lock(tmp_path))
    assert os.listdir(cache) == [".lock"]


def test_relock_pins_what_the_roots_resolve_to(tmp_path: Path, served: Path) -> None:
    _serve(served, CONTENT)
    lock = _lock(tmp_path, OTHER_SHA256)
    expected = [Jar(COORDINATE, "thing_2.13-1.2.3.jar", SHA256)]
    assert jars.relock(lock) == expected
    assert jars.parse_lock(lock.read_text(), source="it") == expected
    assert jars.parse_roots(lock.read_text()) == [Root(COORDINATE, False)]


@pytest.mark.parametrize("version", ["17.0.15", "21.0.2", "21-ea"])
def test_a_supported_java_is_found_under_java_home(
    tmp_path: Path, served: Path, monkeypatch: pytest.MonkeyPatch, version: str
) -> None:
    home = _install_java(tmp_path / "another", version, served)
    monkeypatch.setenv("JAVA_HOME", str(home))
    assert jars.java_executable() == str(home / "bin" / "java")


@pytest.mark.parametrize(("version", "major"), [("1.8.0_402", "8"), ("11.0.2", "11"), ("25", "25")])
def test_another_java_is_refused_by_its_version(
    tmp_path: Path, served: Path, monkeypatch: pytest.MonkeyPatch, version: str, major: str
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(_install_java(tmp_path / "another", version, served)))
    with pytest.raises(JarsError, match=rf"is Java {major}, but Java 17 or 21 is needed: set JAVA_HOME"):
        jars.java_executable()


@pytest.mark.parametrize(
    ("script", "kind", "words"),
    [
        ("echo Picked up JAVA_TOOL_OPTIONS: -Dx=y >&2; kill -9 $$", SparkStartError, "SIGKILL"),
        ("kill -TERM $$", SparkStartError, "SIGTERM"),
        ("echo There is insufficient memory for the JVM >&2; exit 1", SparkStartError, "driver_memory"),
        ("echo unable to create native thread >&2; exit 1", ExhaustedError, "ulimit -u"),
        ("echo Unrecognized VM option: NoSuch >&2; exit 1", SettingsError, "JAVA_TOOL_OPTIONS"),
        ("echo I am no Java >&2", JarsError, "did not tell its version: 'I am no Java'"),
    ],
)
def test_a_java_that_ends_before_it_tells_its_version_is_judged_by_how_it_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, kind: type[OutboxError], words: str
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(_install(tmp_path / "another", f"#!/bin/sh\n{script}\n".encode())))
    with pytest.raises(OutboxError, match=words) as raised:
        jars.java_executable()
    assert type(raised.value) is kind
    assert raised.value.may_pass == (kind is SparkStartError)


def test_a_file_that_is_no_program_is_no_java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(_install(tmp_path / "another", b"\x7fELF of another machine")))
    with pytest.raises(SettingsError, match="JAVA_HOME must lead to"):
        jars.java_executable()


def test_a_download_that_is_killed_may_be_tried_again(
    tmp_path: Path, served: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    java = _install_java(tmp_path / "another", "17.0.15", served) / "bin" / "java"
    java.write_text(java.read_text().replace("echo run", "kill -9 $$; echo run"))
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "another"))
    with pytest.raises(SparkStartError, match="SIGKILL") as raised:
        jars.resolve(_lock(tmp_path))
    assert raised.value.may_pass


def test_what_is_no_utf_8_in_the_output_of_ivy_stops_no_download(
    tmp_path: Path, served: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It names files, and repeats what a mirror answers."""
    _serve(served, CONTENT)
    java = _install_java(tmp_path / "another", "17.0.15", served) / "bin" / "java"
    java.write_text(java.read_text().replace("echo run", "printf 'caf\\351\\n'; echo run"))
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "another"))
    assert [path.read_bytes() for path in jars.resolve(_lock(tmp_path))] == [CONTENT]


def test_a_missing_java_is_said_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "nowhere"))
    with pytest.raises(JarsError, match=r"nowhere.*has no bin/java: install Java 17 or 21"):
        jars.java_executable()
    monkeypatch.delenv("JAVA_HOME")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(JarsError, match="no 'java' on PATH"):
        jars.java_executable()

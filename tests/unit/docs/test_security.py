"""What SECURITY.md says of all code: nothing is unpickled, the transform is the only code that is found by a name, and Arrow hashes nothing
that producers chose as it is. What docs/privacy.md leaves out holds no personal data.
"""

import ast
import errno
import os
import re
import stat
import traceback
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pyarrow as pa
import pytest
from pyspark.errors import PySparkException

from service.errors import SettingsError
from service.private_file import private, write_private
from spark_job.assembly.task_errors import without_quotes
from spark_job.failures.explain import explain
from spark_job.ledger.runs import because
from tests.support.pages.markdown import pages, tables
from tests.support.paths import ROOT

DEPLOYED = ("spark_job", "publisher", "contract", "service", "db", "outbox_consumer")
UNPICKLERS = {
    "pickle",
    "cPickle",
    "_pickle",
    "cloudpickle",
    "dill",
    "joblib",
    "jsonpickle",
    "marshal",
    "shelve",
    "torch",
}
LOADERS = {
    "__import__",
    "eval",
    "exec",
    "compile",
    "import_module",
    "module_from_spec",
    "run_module",
    "run_path",
    "exec_module",
}
"""Calls that run code which a string or a file names."""
# The names are in the code, which says where each command is.
COMMANDS = ("service/commands/main.py", "import_module")
TRANSFORM = ("spark_job/outputs/transform.py", "import_module")
HASHING = {"dictionary_encode", "unique", "value_counts", "group_by", "index_in", "is_in"}
"""Methods and functions of Arrow that put values into a hash table."""
FEW_VALUES = [("publisher/archive/parquet.py", "is_in")] * 2 + [
    ("spark_job/sessions/parsing/records.py", "index_in")
]
"""Their tables hold what a person named: session keys to look for, and types of the settings."""
WITHOUT_DATA = {
    "service/lifecycle/fault_points.py",
    "spark_job/commands/init.py",
    "spark_job/spark/ivy.py",
    "spark_job/spark/jars.py",
}
"""What writes files that hold nothing of any session."""


def modules() -> Iterator[Path]:
    for package in DEPLOYED:
        yield from sorted((ROOT / package).rglob("*.py"))


def unpickling(tree: ast.AST) -> Iterator[str]:
    """What loads objects out of bytes: imports of modules that do, and calls that may be told to."""
    for node in ast.walk(tree):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [node.module or "", *(alias.name for alias in node.names)]
        elif isinstance(node, ast.Call):
            told = {keyword.arg for keyword in node.keywords}
            names = (
                ["pickle"] if "allow_pickle" in told or called(node) in ("read_pickle", "unpickle") else []
            )
        yield from (name for name in names if UNPICKLERS & set(name.split(".")))


def loading(tree: ast.AST) -> Iterator[str]:
    """Calls of what runs code by its name; `re.compile` is none."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and called(node) in LOADERS:
            function = node.func
            if not (isinstance(function, ast.Attribute) and function.attr in ("compile", "exec", "eval")):
                yield called(node)


def hashing(tree: ast.AST) -> Iterator[str]:
    """Calls of Arrow's hash tables for values that are not hidden."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and called(node) in HASHING and isinstance(node.func, ast.Attribute):
            owner = node.func.value
            values = {each.arg: each.value for each in node.keywords}.get("value_set", owner)
            is_sorted = isinstance(owner, ast.Name) and owner.id == "np"
            if not is_sorted and not (isinstance(values, ast.Call) and called(values) == "hidden"):
                yield called(node)


def called(node: ast.Call) -> str:
    function = node.func
    if isinstance(function, ast.Attribute):
        return function.attr
    return function.id if isinstance(function, ast.Name) else ""


@pytest.mark.parametrize(
    "code",
    [
        "import pickle",
        "from marshal import loads",
        "import pyspark.cloudpickle as c",
        "from pyspark import cloudpickle",
        "def f():\n    import dill",
        "numpy.load(f, allow_pickle=True)",
        "pandas.read_pickle(f)",
    ],
)
def test_what_unpickles_is_seen(code: str) -> None:
    assert list(unpickling(ast.parse(code))) != []


@pytest.mark.parametrize(
    "code", ["__import__(name)", "importlib.import_module(name)", "exec(text)", "spec.loader.exec_module(m)"]
)
def test_what_loads_code_is_seen(code: str) -> None:
    assert list(loading(ast.parse(code))) != []


@pytest.mark.parametrize(
    "code",
    ["keys.dictionary_encode()", "pc.index_in(hidden(a), value_set=b)", "pc.unique(a)", "table.group_by(k)"],
)
def test_what_hashes_values_as_they_are_is_seen(code: str) -> None:
    assert list(hashing(ast.parse(code))) != []


def test_nothing_that_producers_chose_is_hashed_as_it_is() -> None:
    found = [
        (str(path.relative_to(ROOT)), name)
        for path in modules()
        for name in hashing(ast.parse(path.read_text("utf-8")))
    ]
    assert sorted(found) == FEW_VALUES


def test_nothing_is_unpickled() -> None:
    found = {
        (str(path.relative_to(ROOT)), name)
        for path in modules()
        for name in unpickling(ast.parse(path.read_text("utf-8")))
    }
    assert found == set()


def test_the_transform_is_the_only_code_whose_name_comes_from_outside() -> None:
    found = [
        (str(path.relative_to(ROOT)), name)
        for path in modules()
        for name in loading(ast.parse(path.read_text("utf-8")))
    ]
    assert sorted(found) == [COMMANDS, TRANSFORM]


def test_a_file_that_may_hold_session_keys_is_its_owners_alone(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    write_private(file, "k\n", "--x")
    assert (file.read_text("utf-8"), stat.S_IMODE(file.stat().st_mode)) == ("k\n", 0o600)
    write_private(file, "again\n", "--x")
    assert file.read_text("utf-8") == "again\n"
    others = {
        str(path.relative_to(ROOT))
        for path in modules()
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.Call) and called(node) == "write_text"
    }
    assert others == WITHOUT_DATA


@pytest.mark.parametrize("is_linked", [False, True])
def test_a_file_that_another_user_has_put_there_is_not_written_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_linked: bool
) -> None:
    theirs, file = tmp_path / "theirs", tmp_path / "keys"
    theirs.write_text("theirs")
    if is_linked:
        file.symlink_to(theirs)
    else:
        theirs.rename(file)
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    with pytest.raises(SettingsError, match="another user's"):
        write_private(file, "k\n", "--x")
    assert file.read_text("utf-8") == "theirs"
    with open("/dev/null", "w", opener=private) as nothing:
        nothing.write("k\n")


def test_a_link_that_another_user_has_put_there_overwrites_no_file_of_ours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours, file = tmp_path / "ours", tmp_path / "keys"
    ours.write_text("ours")
    file.symlink_to(ours)
    write_private(file, "by our own link", "--x")
    found = list(file.lstat())
    found[stat.ST_UID] = os.geteuid() + 1
    with monkeypatch.context() as patched:
        patched.setattr(os, "lstat", lambda _: os.stat_result(found))
        with pytest.raises(SettingsError, match="another user's link"):
            write_private(file, "by theirs", "--x")
    assert ours.read_text("utf-8") == "by our own link"


def test_a_pipe_that_another_user_has_put_there_is_not_written_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipe = tmp_path / "keys"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        write_private(pipe, "by us", "--x")
        assert os.read(reader, 100) == b"by us"
        monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
        with pytest.raises(SettingsError, match="another user's"):
            write_private(pipe, "k\n", "--x")
        # Put there only just now.
        monkeypatch.setattr(os, "lstat", _nothing_there)
        with pytest.raises(SettingsError, match="another user's"):
            write_private(pipe, "k\n", "--x")
    finally:
        os.close(reader)


def test_a_link_that_is_put_there_only_just_now_overwrites_no_file_of_ours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours, file = tmp_path / "ours", tmp_path / "keys"
    ours.write_text("ours")
    file.symlink_to(ours)
    monkeypatch.setattr(os, "lstat", _nothing_there)
    with pytest.raises(SettingsError, match="symbolic link"):
        write_private(file, "k\n", "--x")
    assert ours.read_text("utf-8") == "ours"


def _nothing_there(path: str) -> os.stat_result:
    raise FileNotFoundError(path)


def test_no_byte_that_another_program_writes_can_stop_what_reads_it() -> None:
    strict = {
        f"{path.relative_to(ROOT)}: {ast.unparse(node)}"
        for path in modules()
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.Call) and called(node) in ("run", "Popen", "check_output")
        for named in [{keyword.arg for keyword in node.keywords}]
        if named & {"text", "encoding", "universal_newlines"} and "errors" not in named
    }
    # A character that is not as pg_dump wrote it would be in the schema's file.
    assert {each.partition(":")[0] for each in strict} == {"db/dump.py"}


def test_no_page_puts_a_token_into_a_command_line() -> None:
    """`ps` and `docker inspect` show it, and one that is written out is somebody's real one soon."""
    shown = re.compile(r"OUTBOX_CONSOLE__TOKEN=\S|^\s*token\s*=\s*\"[^\"]+\"", re.MULTILINE)
    files = [path for kind in ("md", "yml", "yaml", "toml", "sh") for path in ROOT.rglob(f"*.{kind}")]
    assert len(files) > 50
    assert [path for path in files if shown.search(path.read_text("utf-8", "replace"))] == []


IN_WORKER = 'Lost task: PythonException: Traceback (most recent call last):\n  File "/app/shop.py", line 7, in transform\n'
_BLOCK = re.compile(r"^```(?:sh|bash|console)\n(.*?)^```", re.DOTALL | re.MULTILINE)
_WRITES_SECRET = re.compile(
    r"(?:openssl (?:rand|genr).*[^-=<]>|(?<![-=<])>>?|\btee\b)[ \"']*[^ \"'|]*(?:token|secret|passw|pgpass|dsn|\.key)\b",
    re.IGNORECASE,
)


def open_secrets(script: str) -> list[str]:
    """Return the commands of a script that write a secret as a file which other users of the machine may read."""
    before, found = "", []
    for line in script.splitlines():
        before += line
        if _WRITES_SECRET.search(line) and "umask 077" not in before:
            found.append(line)
    return found


@pytest.mark.parametrize(
    ("script", "count"),
    [
        ("openssl rand -hex 16 > console.token", 1),
        ("echo $DSN | tee ./secrets/job.dsn", 1),
        ("umask 077\nopenssl rand -hex 16 > console.token", 0),
        ("openssl rand -hex 16 | install -m 400 /dev/stdin console.token", 0),
    ],
)
def test_a_command_that_lets_others_read_a_secret_is_found(script: str, count: int) -> None:
    assert len(open_secrets(script)) == count


def test_no_page_or_script_lets_others_read_a_secret_that_it_writes() -> None:
    scripts = [block for page in pages() for block in _BLOCK.findall((ROOT / page).read_text("utf-8"))]
    for kind in ("yml", "yaml", "sh"):
        scripts += [
            path.read_text("utf-8", "replace")
            for path in ROOT.rglob(f"*.{kind}")
            if not any(part.startswith(".") for part in path.relative_to(ROOT).parts)
        ]
    assert len(scripts) > 50
    assert [line for script in scripts for line in open_secrets(script)] == []


FORGED = "Jane\nTraceback (most recent call last):\nservice.errors.SettingsError: Doe, born 1970"


class PanicException(BaseException):
    """Of an extension in Rust: its text quotes the text that it cannot slice."""


def of_worker(raised: BaseException) -> PySparkException:
    """Return what Spark makes of a task that raises this."""

    def rows() -> Iterator[None]:
        yield None
        raise raised

    try:
        list(without_quotes(rows()))
    except BaseException:  # noqa: BLE001 - as a worker does
        return PySparkException(f"Lost task: PythonException: {traceback.format_exc()}\n\tat X.y(X.scala:1)")
    raise AssertionError("it raised nothing")


STOPPED = (
    "\n\nThe above exception was the direct cause of the following exception:\n\nTraceback (most recent call last):\n"
    '  File "/app/task.py", line 245, in _session\n'
    "spark_job.outputs.transform_failures.TransformStoppedError: shop:f failed for the session that ends at in/0/9\n\n\tat X.y(X.scala:1)"
)


@pytest.mark.parametrize(
    "error",
    [
        PySparkException(f"{IN_WORKER}ValueError: TransformStoppedError: Jane\nDoe\nborn 1970{STOPPED}"),
        PySparkException(
            f"{IN_WORKER}library.OddError: MemoryError: Jane\nDoe\nborn 1970\n\n\tat X.y(X.scala:1)"
        ),
        of_worker(PanicException(f"byte index 3 is not a char boundary of `{FORGED}`")),
        of_worker(ValueError(FORGED)),
        of_worker(MemoryError(FORGED)),
        of_worker(OSError(FORGED)),
        of_worker(OSError(errno.ENOSPC, "No space left on device", "/srv/out/jane.Doe@example.json")),
        KeyError("Jane Doe, born 1970"),
        pa.ArrowInvalid("Jane Doe, born 1970"),
        psycopg.errors.CheckViolation("violates x\nDETAIL:  Failing row contains (Jane Doe, born 1970)"),
        psycopg.errors.InvalidTextRepresentation('invalid input for type bigint: "Jane Doe, born 1970"'),
    ],
)
def test_why_a_run_ended_quotes_no_event_and_so_is_no_place_of_personal_data(error: Exception) -> None:
    """The table of docs/privacy.md does not name `outbox.run`, nor does `publisher erase` look there."""
    page = ROOT / "docs" / "privacy.md"
    places = next(rows for head, rows in tables(page) if head[0] == "place")
    assert not [row for row in places if re.search(r"\brun\b|ended_because", row[0])]
    for said in (because(explain(error), None), str(explain(error))):
        assert not re.search("Jane|Doe|1970", said), said

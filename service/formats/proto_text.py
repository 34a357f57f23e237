"""Protobuf schemas of registries that give only their text: compiled by protoc, as the package grpcio-tools brings it.

In a process of its own, once for each file: a compiler's complaints are kept so, and its crashes apart. Anybody who may register a schema
chooses the names, so none becomes a path or an argument (protoc reads `@FILE` as more arguments): each text is compiled under a name of
ours, finds its imports in a set of descriptors, and gets its own name afterwards, as data.
"""

import base64
import importlib.util
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from service.formats.proto_builtin import builtin_files, builtin_imports
from service.formats.writer import RegistryAwayError, RegistryRefusedError, SchemaUnusableError

if TYPE_CHECKING:
    from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet

_TIMEOUT_S = 120
"""Some ten times what protoc takes for the worst text of _MOST_CHARS, which is by their square: longer than that is the machine's fault."""
_MOST_CHARS = 1 << 19
"""Of one file's text."""
_MOST_MEMORY = 1 << 30
"""Bytes of address space for protoc: it keeps the full name of everything. Over it, it aborts."""
_MOST_WRITTEN = 8 << 20
"""Bytes of protoc's words, and of the descriptors: both repeat a long name as often as a text can refer to it. Python ignores SIGXFSZ, so
that more fails to be written."""
_SOURCE, _FILE, _IMPORTS, _OUT, _SAID = "source", "schema.proto", "imports", "out", "said"
_SHOWN_CHARS = 2_000
_READ_BYTES = 4 * _SHOWN_CHARS
_REFUSED = 3
# Not grpc_tools' own main: it adds a folder with google.protobuf's files, which the imports have already. A Python that fails ends with 1.
_CALL = (
    "import resource, sys; from grpc_tools import _protoc_compiler as p; "
    f"resource.setrlimit(resource.RLIMIT_AS, ({_MOST_MEMORY}, {_MOST_MEMORY})); "
    f"resource.setrlimit(resource.RLIMIT_FSIZE, ({_MOST_WRITTEN}, {_MOST_WRITTEN})); "
    f"sys.exit({_REFUSED} if p.run_main([each.encode() for each in sys.argv]) else 0)"
)
# What a text can do to a compiler. Any other end is the machine's or a person's: a signal to a whole service, want of memory.
_CRASHES = (-signal.SIGSEGV, -signal.SIGABRT, -signal.SIGBUS, -signal.SIGFPE, -signal.SIGILL)


def has_compiler() -> bool:
    """Whether texts can be compiled here."""
    return importlib.util.find_spec("grpc_tools") is not None


def is_descriptor(text: str) -> bool:
    """Whether a Protobuf schema is given as one, and not as its text."""
    try:
        base64.b64decode(text, validate=True)
    except ValueError:
        return False
    return True


def descriptors(text: str, references: Mapping[str, str]) -> tuple[str, dict[str, str]]:
    """Return the descriptors of a schema and of what it refers to, in base64, as a registry gives them that can.

    Any may be a descriptor already. `references`: {name: text}, each behind those that it refers to itself, and none that is built in.
    Raises SchemaUnusableError where protoc refuses a text, RegistryRefusedError where there is no protoc, RegistryAwayError where it cannot
    be run now.
    """
    from google.protobuf import descriptor_pb2

    if not has_compiler():
        raise RegistryRefusedError(
            "the schema registry gives Protobuf schemas as text only; to compile them here needs the extra `protobuf-text` "
            "(pip install 'spark-outbox[protobuf-text]'), on the executors, too; registries as Confluent's answer "
            "`?format=serialized` with a descriptor, and need none"
        )
    imports = [name for each in (text, *references.values()) for name in _builtin_names(each)]
    known = descriptor_pb2.FileDescriptorSet(file=builtin_imports(imports))
    found: dict[str, str] = {}
    with tempfile.TemporaryDirectory(prefix="outbox-proto-") as folder:
        for name, each in references.items():
            file = _file(Path(folder), each, known)
            file.name = name
            known.file.append(file)
            found[name] = _encoded(file)
        return _encoded(_file(Path(folder), text, known)), found


def _builtin_names(text: str) -> Iterable[str]:
    """The built-in files that a schema imports; of a text, all that it names."""
    from google.protobuf import descriptor_pb2

    if is_descriptor(text):
        return list(descriptor_pb2.FileDescriptorProto.FromString(base64.b64decode(text)).dependency)
    return [name for name in builtin_files() if f'"{name}"' in text or f"'{name}'" in text]


def _file(folder: Path, text: str, known: "FileDescriptorSet") -> "FileDescriptorProto":
    from google.protobuf import descriptor_pb2

    if is_descriptor(text):
        return descriptor_pb2.FileDescriptorProto.FromString(base64.b64decode(text))
    return _compiled(folder, text, known)


def _encoded(file: "FileDescriptorProto") -> str:
    return base64.b64encode(file.SerializeToString()).decode()


def _compiled(folder: Path, text: str, known: "FileDescriptorSet") -> "FileDescriptorProto":
    """The descriptor of one text; its imports are `known`."""
    from google.protobuf import descriptor_pb2

    if len(text) > _MOST_CHARS:
        raise SchemaUnusableError(f"its text, or one that it refers to, has over {_MOST_CHARS} characters")
    (folder / _SOURCE).mkdir(exist_ok=True)
    (folder / _SOURCE / _FILE).write_bytes(text.encode("utf-8", "backslashreplace"))
    (folder / _IMPORTS).write_bytes(known.SerializeToString())
    options = [f"--proto_path={_SOURCE}", f"--descriptor_set_in={_IMPORTS}", f"--descriptor_set_out={_OUT}"]
    try:
        with open(folder / _SAID, "wb") as said:
            done = subprocess.run(
                [sys.executable, "-c", _CALL, *options, _FILE],
                cwd=folder,  # its name would be in what protoc says, and another one each time
                stdout=subprocess.DEVNULL,
                stderr=said,
                timeout=_TIMEOUT_S,
                check=False,
            )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise RegistryAwayError(f"protoc cannot be run: {type(error).__name__}: {error}") from error
    if done.returncode == _REFUSED or done.returncode in _CRASHES:
        raise SchemaUnusableError(f"protoc says: {_said(folder, done.returncode)[:_SHOWN_CHARS]}")
    if done.returncode != 0:
        # Python's traceback, whose last line has the cause.
        words = _said(folder, done.returncode)[-_SHOWN_CHARS:]
        raise RegistryAwayError(f"protoc ended before it had judged the schema: {words}")
    return descriptor_pb2.FileDescriptorSet.FromString((folder / _OUT).read_bytes()).file[-1]


def _said(folder: Path, code: int) -> str:
    """The first words of protoc, as far as people read them."""
    with open(folder / _SAID, "rb") as file:
        words = file.read(_READ_BYTES).decode(errors="replace")
    return " / ".join(words.split("\n")).strip(" /") or f"exit code {code}"

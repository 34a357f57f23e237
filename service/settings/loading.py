"""Reads the settings once, at the start, out of the file and the environment; a message names each wrong key and what it should be."""

import difflib
import os
from pathlib import Path

from pydantic import ValidationError

from service.errors import SettingsError
from service.private_file import is_of_another_user, others_may_write
from service.settings.section import read_toml
from service.settings.settings import Settings, known_keys

REMOVED = {
    "job.checkpoint": "there is no checkpoint that matters any more: Postgres and Kafka hold everything. [job] cache names the folder "
    "of the open sessions, which may be lost. Remove it; the old folder can be deleted",
    "job.buckets": "nothing is shuffled any more, so there are no buckets. Remove it",
    "job.shuffle_partitions": "nothing is shuffled any more: [job] tasks bounds the tasks of a batch, the cores by default. Remove it",
    "job.trigger_ms": "[job] latency is how soon a batch may follow the one before: lowest, balanced, cheapest, or milliseconds. "
    "Remove it, and set latency instead",
    "restart.failures": "[restart] attempts bounds the restarts in succession. Remove it",
    "restart.jitter": "a tenth of each delay is random. Remove it",
    "restart.multiplier": "each delay is twice the one before, up to [restart] max_delay_s. Remove it",
    "restart.window_s": "[restart] reset_after_s ends a succession of restarts. Remove it",
    "session.max_bucket_bytes": "open sessions are bounded for each input partition: [session] max_open_bytes. Remove it",
}
"""{section.key: reason and remedy} of settings that this version no longer has: they are refused with this sentence instead of a guess."""


def load_settings(path: str | Path | None = None) -> Settings:
    """Read the TOML file at `path`, else at OUTBOX_CONFIG, else `outbox.toml` if it exists, and the environment.

    Raises SettingsError that explains each wrong key, with the nearest known key for an unknown one; or for an unnamed file that others
    may have written.
    """
    named = path or os.environ.get("OUTBOX_CONFIG")
    file = Path(named or "outbox.toml")
    if named and not file.is_file():
        raise SettingsError(
            f"there is no settings file {str(file)!r}: name one with --config or OUTBOX_CONFIG"
        )
    try:
        if not named:
            _refuse_of_others(file)
        values = read_toml(file) if file.is_file() else {}
    except ValueError as error:
        raise SettingsError(f"{file} is not valid TOML: {error}") from error
    except OSError as error:
        raise SettingsError(f"{file} cannot be read: {error}") from error
    # BaseSettings would take `_env_file` for a parameter of its own, and leave out one of [job] and [Job].
    if strange := values.keys() - Settings.model_fields.keys():
        raise SettingsError(
            f"wrong settings in {file}:\n"
            + "\n".join(_explain((name,), "", "extra_forbidden") for name in sorted(strange))
        )
    _refuse_unknown_environment()
    try:
        return Settings(**values)
    except ValidationError as error:
        where = f"{file} or the environment" if file.is_file() else "the environment"
        raise SettingsError(
            f"wrong settings in {where}:\n"
            + "\n".join(_explain(e["loc"], e["msg"], e["type"]) for e in error.errors())
        ) from error


def _refuse_of_others(file: Path) -> None:
    """Raise SettingsError for an unnamed file that another user may have written: settings name servers, files and code."""
    try:
        found = (file.stat(), file.lstat())
    except FileNotFoundError:
        return
    if is_of_another_user(found[1]) or others_may_write(found[0]):
        raise SettingsError(
            f"{str(file)!r} in this folder is another user's, or others may write to it, so it is not read unasked. `chmod go-w {file}`, "
            "or name it with --config or OUTBOX_CONFIG if it is yours to trust"
        )


def _refuse_unknown_environment() -> None:
    known = {f"OUTBOX_{key.replace('.', '__')}".upper() for key in known_keys()} | {"OUTBOX_CONFIG"}
    for name in os.environ:
        if name.upper().startswith("OUTBOX_") and "__" in name and name.upper() not in known:
            if any(
                name.upper().startswith(f"{table}__")
                for table in (
                    "OUTBOX_KAFKA__OPTIONS",
                    "OUTBOX_KAFKA__JAVA_OPTIONS",
                    "OUTBOX_JOB__SPARK_OPTIONS",
                    "OUTBOX_SCHEMA_REGISTRY__OPTIONS",
                )
            ):
                continue
            key = name.removeprefix("OUTBOX_").replace("__", ".", 1).lower()
            if key in REMOVED:
                raise SettingsError(f"environment variable {name} was removed: {REMOVED[key]}")
            near = difflib.get_close_matches(name.upper(), known, 1)
            raise SettingsError(
                f"unknown environment variable {name}" + (f": did you mean {near[0]}?" if near else "")
            )


def _explain(location: tuple[int | str, ...], message: str, kind: str) -> str:
    key = ".".join(str(part) for part in location)
    if key in REMOVED:
        return f"  {key} was removed: {REMOVED[key]}"
    if kind == "extra_forbidden":
        near = difflib.get_close_matches(key, [*known_keys(), *Settings.model_fields], 1)
        return f"  {key}: unknown key" + (f", did you mean {near[0]}?" if near else "")
    return f"  {key or 'settings'}: {message}"

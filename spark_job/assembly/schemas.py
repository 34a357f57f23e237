"""Fetch the schemas that records need before the assembler sees the records: it requests only those that have left the memory since.

Each id gets a verdict here. A schema that the registry does not have may be registered a moment later, so a young record is not refused at
once: the registry is asked again for some seconds. The verdicts are stored with the position (`refused_ids`).
"""

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from service.errors import CredentialsRefusedError, SettingsError
from service.formats.registry.client import check_login, registry_client
from service.formats.registry.schemas import RegistrySchemas, schemas_of
from service.formats.writer import (
    RegistryAwayError,
    RegistryRefusedError,
    Schemas,
    UnusableSchema,
    WriterSchema,
)
from spark_job.assembly.refused_ids import RefusedIds
from spark_job.assembly.slices import TaskSettings
from spark_job.sessions.parsing.formats import KINDS, has_schemas, why_unusable
from spark_job.sessions.parsing.schema_id_heads import record_ids
from spark_job.sessions.settings import AssemblySettings

Int = npt.NDArray[np.int64]

REGISTERED_WITHIN_S = 5.0
"""A record whose schema the registry does not have is refused once the record is this old, or once the registry has not had the
id for this long."""
MOST_IN_VAIN = 200
"""Number of ids without a usable schema that a task may ask the registry for. After that, each piece of its input may add one."""
_FIRST_PAUSE_S = 0.2
_LOGIN = (
    "correct [schema_registry] secret_options_file, or the options that have the credentials: `basic.auth.user.info`, `bearer.auth.*`, "
    "`ssl.certificate.location`"
)


def check_registry(options: Mapping[str, Any]) -> None:
    """Check that a client can be made and that the registry, if it answers now, admits it. `options`: empty if no registry is used.

    Raises SettingsError if none can be made: an option is wrong, or the extra is not installed. Raises CredentialsRefusedError.
    """
    if not options:
        return
    try:
        client = registry_client(options)
    except (RegistryRefusedError, ModuleNotFoundError) as error:
        raise SettingsError(str(error)) from error
    try:
        check_login(client, str(options["url"]))
    except RegistryRefusedError as error:
        raise CredentialsRefusedError(f"{error} ({_LOGIN})") from error
    finally:
        client.close()


def schemas_for(rules: AssemblySettings, settings: TaskSettings) -> Schemas:
    """Return the schemas of a format; empty if it has none."""
    return schemas_of(settings.registry) if has_schemas(rules.format) else {}


class RegistryBudget:
    """A task's limit for ids that were asked for in vain (no usable schema came), over all its partitions and pieces of input."""

    def __init__(self) -> None:
        self._began = time.monotonic()
        self._in_vain: dict[int, tuple[float, UnusableSchema]] = {}
        """For each id: when it was asked for last, and the answer."""

    @property
    def waits_until(self) -> float:
        """The time (time.monotonic) from which all records are old enough, whatever their times: Kafka had them when the task began."""
        return self._began + REGISTERED_WITHIN_S

    @property
    def is_spent(self) -> bool:
        """Whether `MOST_IN_VAIN` ids were asked for in vain."""
        return len(self._in_vain) >= MOST_IN_VAIN

    def note(self, schema_id: int, answer: UnusableSchema) -> None:
        """Note that an id was asked for in vain."""
        self._in_vain[schema_id] = time.monotonic(), answer

    def was_in_vain(self, schema_id: int) -> bool:
        """Return whether an id was asked for in vain before."""
        return schema_id in self._in_vain

    def last_word(self, schema_id: int) -> UnusableSchema | None:
        """Return an answer that came late enough for all records of the task; None if there is none yet."""
        asked_at, answer = self._in_vain.get(schema_id, (float("-inf"), None))
        return answer if asked_at >= self.waits_until else None


@dataclass(frozen=True)
class Judged:
    """Some records with the schemas by which they are read."""

    records: pa.Table
    schemas: Schemas
    refused: RefusedIds
    """The verdicts so far, with those on these records."""
    unusable: int = 0
    """Records whose schema cannot be used, or is of another kind than the format."""


def judged(
    schemas: Schemas, new: pa.Table, rules: AssemblySettings, before: RefusedIds, budget: RegistryBudget
) -> Judged:
    """Return new records with their schemas. `before`: the verdicts on the records before them.

    Raises RegistryAwayError, RegistryRefusedError.
    """
    if not isinstance(schemas, RegistrySchemas):
        return Judged(new, schemas, before)
    rows, ids = record_ids(new, rules)
    found = _ask_until_certain(JudgedSchemas(schemas, rules), new, rows, ids, budget)
    refused = before.judged(ids, new.column("offset").to_numpy()[rows], found.verdicts)
    return Judged(new, found, refused, int(np.isin(ids, list(found.unreadable)).sum()))


def judged_again(
    schemas: Schemas, old: pa.Table, rules: AssemblySettings, refused: RefusedIds, budget: RegistryBudget
) -> Judged:
    """Return records that were read before, without those that were refused at that time: these belong to no session.

    Raises RegistryAwayError, RegistryRefusedError.
    """
    if not isinstance(schemas, RegistrySchemas):
        return Judged(old, schemas, refused)
    rows, ids = record_ids(old, rules)
    gone = refused.of(ids, old.column("offset").to_numpy()[rows])
    kept = np.ones(len(old), bool)
    kept[rows[gone]] = False
    if gone.any():
        old = old.filter(pa.array(kept))
    found = JudgedSchemas(schemas, rules)
    _ask_once(found, _by_frequency(ids[~gone]), budget)
    return Judged(old, found, refused)


class JudgedSchemas(Mapping[int, WriterSchema | UnusableSchema]):
    """The schemas of some ids, each with its verdict. `registry` caches usable ones: a look-up may ask the registry again."""

    def __init__(self, registry: RegistrySchemas, rules: AssemblySettings) -> None:
        self.registry = registry
        self.verdicts: dict[int, UnusableSchema | None] = {}
        """Why an id's schema cannot read any value; None if it can read some."""
        self.unreadable: set[int] = set()
        """Ids whose schemas cannot read any record: unusable schemas, and schemas of another kind than the format."""
        self._rules = rules

    def judge(self, schema_id: int, schema: WriterSchema | UnusableSchema) -> UnusableSchema | None:
        """Note and return the verdict."""
        if isinstance(schema, UnusableSchema):
            found, is_readable = schema, False
        elif (why := why_unusable(schema, self._rules)) is not None:
            found, is_readable = UnusableSchema(f"schema {schema_id}: {why}"), False
        else:
            found, is_readable = None, schema.kind == KINDS[self._rules.format]
        self.verdicts[schema_id] = found
        if is_readable:
            self.unreadable.discard(schema_id)
        else:
            self.unreadable.add(schema_id)
        return found

    def __getitem__(self, schema_id: int) -> WriterSchema | UnusableSchema:
        """Raises RegistryAwayError if the registry no longer has a schema that it had, and what RegistrySchemas raises."""
        if (unusable := self.verdicts[schema_id]) is not None:
            return unusable
        found = self.registry[schema_id]
        if isinstance(found, UnusableSchema):
            raise RegistryAwayError(f"the schema registry has forgotten schema {schema_id}: {found.why}")
        return found

    def __iter__(self) -> Iterator[int]:
        return iter(self.verdicts)

    def __len__(self) -> int:
        return len(self.verdicts)


def _ask_until_certain(
    found: JudgedSchemas, new: pa.Table, rows: Int, ids: Int, budget: RegistryBudget
) -> JudgedSchemas:
    """Judge each id; ask again for absent ones until the records are old enough for a refusal."""
    schemas = found.registry
    _ask_once(found, _by_frequency(ids), budget)
    absent = [number for number, unusable in found.verdicts.items() if _may_come(unusable)]
    if not absent:
        return found
    newest = int(new.column("ts").to_numpy()[rows[np.isin(ids, absent)]].max()) / 1_000
    until = min(budget.waits_until, time.monotonic() + newest + REGISTERED_WITHIN_S - time.time())
    pause_s = _FIRST_PAUSE_S
    while absent:
        waits = {number: min(until, schemas.absent_since(number) + REGISTERED_WITHIN_S) for number in absent}
        left = max(waits.values()) - time.monotonic()
        if left <= 0:
            break
        time.sleep(min(pause_s, left))
        pause_s *= 2
        absent = [number for number in absent if _may_come(found.judge(number, schemas.asked_again(number)))]
    return found


def _ask_once(found: JudgedSchemas, ids: list[int], budget: RegistryBudget) -> None:
    schemas, may_ask = found.registry, True
    for number in ids:
        if schemas.knows(number):
            found.judge(number, schemas[number])
        elif (last_word := budget.last_word(number)) is not None:
            found.judge(number, last_word)
        elif may_ask or budget.was_in_vain(number):
            schema = schemas[number]
            found.judge(number, schema)
            if isinstance(schema, UnusableSchema):
                is_new = not budget.was_in_vain(number)
                budget.note(number, schema)
                may_ask = may_ask and not (is_new and budget.is_spent)
        else:
            why = f"the registry was not asked for schema {number}: {MOST_IN_VAIN} other ids in this task's records have no usable schema"
            found.judge(number, UnusableSchema(why))


def _may_come(unusable: UnusableSchema | None) -> bool:
    return unusable is not None and unusable.may_come


def _by_frequency(ids: Int) -> list[int]:
    """Return each id once: the most frequent first, equally frequent ones by number."""
    numbers, counts = np.unique(ids, return_counts=True)
    return numbers[np.lexsort((numbers, -counts))].tolist()  # type: ignore[no-any-return]

"""The schemas that some records need, fetched before the assembler sees them: it asks nobody."""

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from service.errors import SettingsError
from service.schemas.registry import registry_client, schemas_of
from service.schemas.writer import RegistryRefusedError, Schemas
from spark_job.assembly.slices import TaskSettings
from spark_job.sessions.parsing.heads import schema_ids
from spark_job.sessions.settings import AssemblySettings


def check_registry(options: Mapping[str, Any]) -> None:
    """Make a client, and ask it nothing. `options`: empty where no registry is used.

    Raises SettingsError where there can be none: an option is wrong, or the extra is not installed.
    """
    if options:
        try:
            registry_client(options).close()
        except (RegistryRefusedError, ModuleNotFoundError) as error:
            raise SettingsError(str(error)) from error


def schemas_for(rules: AssemblySettings, settings: TaskSettings) -> Schemas:
    """Return the schemas of a format; none where it has none."""
    return {} if rules.format in ("json", "bytes") else schemas_of(settings.registry)


def known(schemas: Schemas, new: pa.Table, rules: AssemblySettings) -> Schemas:
    """Return the schemas of some new records: the assembler asks nobody.

    Raises RegistryAwayError, RegistryRefusedError.
    """
    if rules.format in ("json", "bytes"):
        return schemas
    return {schema_id: schemas[schema_id] for schema_id in sorted(schema_ids(new, rules))}

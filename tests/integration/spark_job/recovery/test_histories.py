"""Random histories of crashes, lost caches, restores and losses leave exactly what the reference model says, and each rule is needed.

HISTORIES asks for more of them, HISTORY_SEED begins elsewhere.
"""

import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest
from psycopg.rows import dict_row

from db.statements import queries
from devstack.databases import PostgresServer
from service.formats.writer import Schemas
from spark_job.assembly import rebuild, task
from spark_job.assembly.cache import SessionCache
from spark_job.assembly.rebuild import Rebuilt
from spark_job.assembly.schemas import RegistryBudget
from spark_job.assembly.slices import Slice, TaskSettings
from spark_job.input.offsets import Offsets
from spark_job.ledger import generations, ownership, position, savepoints, slice_building
from spark_job.ledger.assembly_rules import rules_since
from spark_job.ledger.open_partitions import OpenPartition, OpenPartitions
from spark_job.ledger.position import InputPosition, StreamRow
from spark_job.recovery import savepoint_restore, start
from spark_job.recovery.findings import From, here
from spark_job.sessions.assembler import assemble
from spark_job.sessions.result import AssembledSessions, DeadLetter
from spark_job.sessions.settings import AssemblySettings
from spark_job.sessions.state.open_state import OpenState
from spark_job.sink import batch_result, covered_letters
from spark_job.sink.batch_result import BatchResult
from spark_job.sink.computed_batch import BatchRange, ResultReader
from tests.support.histories import steps
from tests.support.histories.history import Connection, History, cut_into_small_pieces, settings
from tests.support.histories.steps import KINDS
from tests.support.histories.verdict import wrong

_LETTERS = queries("spark_job", "letters")

HISTORIES = int(os.environ.get("HISTORIES", "27"))
SEED = int(os.environ.get("HISTORY_SEED", "0"))
TRIES_FOR_A_MUTANT = 60

RunHistory = Callable[..., list[str]]


@pytest.fixture
def run_history(
    postgres: PostgresServer, template_database: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> RunHistory:
    """Runs the history of a seed, or a script over its input, in an outbox of its own; returns what is wrong at its end."""
    cut_into_small_pieces(monkeypatch)

    def run_history(seed: int, kind: str = "", script: Callable[[History], None] | None = None) -> list[str]:
        name = f"history_{os.getpid()}_{seed}"
        dsn = postgres.create_database(name, template=template_database)
        try:
            history = History(dsn, tmp_path / f"{seed}", seed, monkeypatch)
            try:
                history.begin()
                if script is None:
                    steps.run_history(history, 5 + seed % 36, kind or KINDS[seed % len(KINDS)])
                else:
                    script(history)
                    history.finish()
                return wrong(history)
            except BaseException as error:
                error.add_note(f"HISTORY_SEED={seed}: {history.steps}")
                raise
            finally:
                history.close()
        finally:
            postgres.drop_database(name)

    return run_history


@pytest.mark.guarantee(42)
@pytest.mark.timeout(1_800)
def test_every_history_leaves_exactly_what_the_reference_model_says(run_history: RunHistory) -> None:
    for seed in range(SEED, SEED + HISTORIES):
        assert run_history(seed) == [], f"HISTORY_SEED={seed}"


def skip_after_an_unfinished_reissue(history: History) -> None:
    """The generation in force has read less than the one before it."""
    steps.save(history)
    for _ in range(4):
        history.batch(most=10)
    steps.reissue(history, "s1")
    history.batch(most=5)
    steps.skip(history)
    history.batch(most=5)


@pytest.mark.guarantee(42, 90)
def test_a_skip_after_an_unfinished_reissue_sends_nothing_again(run_history: RunHistory) -> None:
    assert run_history(3, script=skip_after_an_unfinished_reissue) == []


def skip_over_two_descriptions(history: History) -> None:
    """What is open was judged by others than the generation in force, and is not in the cache."""
    for _ in range(3):
        history.batch(most=10)
    history.settings = settings(max_events=3)
    history.open_by_flags({"--accept-changed-assembly"}, history.expected.now.position, 0)
    history.batch(most=2)
    steps.skip(history)
    for disk in history.disks:
        shutil.rmtree(disk, ignore_errors=True)
    history.batch(most=5)


@pytest.mark.parametrize("seed", [6, 11, 15, 16])  # where another lineage judges otherwise
def test_after_a_skip_each_description_judges_what_it_judged_before(
    run_history: RunHistory, seed: int
) -> None:
    assert run_history(seed, script=skip_over_two_descriptions) == []


# What an obvious implementation would do instead of a rule of recovery


def nothing_is_found_again(patch: pytest.MonkeyPatch) -> None:
    """What is not in the cache counts as not open."""
    patch.setattr(task, "rebuild", lambda _of, _settings, _budget: Rebuilt(OpenState.empty()))


def any_file_of_the_cache_will_do(patch: pytest.MonkeyPatch) -> None:
    """The newest one of the partition, whatever digest the position has."""
    load = SessionCache.load

    def newest(self: SessionCache, wanted: str) -> OpenState | None:
        files = sorted(self._folder.glob("*.sessions"), key=lambda file: file.stat().st_mtime_ns)
        return load(self, files[-1].stem if files else wanted)

    patch.setattr(SessionCache, "load", newest)


def only_partitions_with_new_records_count(patch: pytest.MonkeyPatch) -> None:
    """The open sessions of the others are forgotten."""

    def following(self: ResultReader, planned: BatchRange, result: BatchResult) -> StreamRow:
        found = {each.where: each.open(planned.end[each.where]) for each in result.partitions}
        opened = OpenPartitions({where: each for where, each in found.items() if each is not None})
        return StreamRow(0, Offsets({**self.expected.end, **planned.end}), opened, datetime.now(UTC))

    patch.setattr(ResultReader, "following_row", following)


def tombstones_stay_at_home(patch: pytest.MonkeyPatch) -> None:
    """They are not on the ledger's row: who rebuilds does not know them."""
    whole = batch_result.PartitionReport.open

    def without(self: batch_result.PartitionReport, end: int) -> OpenPartition | None:
        return whole(self._replace(tombstones=b""), end)

    patch.setattr(batch_result.PartitionReport, "open", without)


def parts_begin_where_a_rebuild_begins(patch: pytest.MonkeyPatch) -> None:
    """And are counted from there on."""
    patch.setattr(OpenState, "awaiting", lambda _remembered: OpenState.empty())


def what_closed_before_is_told_again(patch: pytest.MonkeyPatch) -> None:
    """A rebuild does not forget the letters that are in the outbox."""
    told: list[DeadLetter] = []

    def telling(
        state: OpenState, new: pa.Table, rules: AssemblySettings, schemas: Schemas
    ) -> AssembledSessions:
        found = assemble(state, new, rules, schemas)
        told.extend(found.letters)
        return found

    def remembering(of: Slice, settings: TaskSettings, budget: RegistryBudget) -> Rebuilt:
        told.clear()
        found = rebuild.rebuild(of, settings, budget)
        found.timed_out = list(told)
        return found

    patch.setattr(rebuild, "assemble", telling)
    patch.setattr(task, "rebuild", remembering)


def new_rules_judge_old_events(patch: pytest.MonkeyPatch) -> None:
    """A rebuild judges all by the settings of now."""
    patch.setattr(slice_building, "rules_since", lambda *given: rules_since(*given)[-1:])


def the_newest_batch_is_that_of_sparks_greatest_number(patch: pytest.MonkeyPatch) -> None:
    """Spark counts anew with each run."""

    def newest_row(connection: Connection, generation: int) -> StreamRow | None:
        with connection.cursor(row_factory=dict_row) as cursor:
            row = cursor.execute(
                "SELECT batch_id, end_offsets, open_state, created_at FROM outbox.batch"
                " WHERE generation = %s AND kind = 'stream' ORDER BY spark_batch DESC, batch_id DESC LIMIT 1",
                [generation],
            ).fetchone()
        if row is None:
            return None
        end, opened = Offsets.from_json(row["end_offsets"]), OpenPartitions.from_json(row["open_state"])
        return StreamRow(row["batch_id"], end, opened, row["created_at"])

    patch.setattr(position, "newest_row", newest_row)


def an_unused_generation_is_passed_over(patch: pytest.MonkeyPatch) -> None:
    """A crash between the insert of a reissue and its first batch would lose the reissue."""

    def read(connection: Connection) -> InputPosition | None:
        newest = generations.newest_generation(connection)
        if newest is None:
            return None
        rows = (position.newest_row(connection, number) for number in range(newest.number, 0, -1))
        return InputPosition(newest, next((row for row in rows if row is not None), None))

    patch.setattr(position, "read", read)


def skip_goes_by_the_current_position(patch: pytest.MonkeyPatch) -> None:
    """After a reissue the current generation may have read less than an earlier one."""
    patch.setattr(savepoint_restore, "greatest_position", current)


def current(connection: Connection) -> From:
    """As if it were the greatest position."""
    found = position.read(connection)
    assert found is not None
    return here(found)


def a_cut_is_not_remembered(patch: pytest.MonkeyPatch) -> None:
    """A skip continues behind what was read of records that Kafka has lost."""
    rows = savepoint_restore.position_rows
    patch.setattr(
        savepoint_restore,
        "position_rows",
        lambda connection: [row | {"cut_offsets": {}} for row in rows(connection)],
    )


def a_cut_is_judged_by_the_current_position(patch: pytest.MonkeyPatch) -> None:
    """Kafka has lost what a reissue has not reached again: a skip continues behind that."""
    patch.setattr(start, "greatest_position", current)


def a_savepoint_outlives_a_cut(patch: pytest.MonkeyPatch) -> None:
    """Its offsets name other events."""
    whole = savepoints.Savepoint.from_row
    patch.setattr(savepoints.Savepoint, "from_row", lambda row: whole(row | {"cuts": []}))


def a_reissue_begins_with_what_is_open(patch: pytest.MonkeyPatch) -> None:
    """At the savepoint's safe offsets, as if a rebuild were a reissue."""
    whole = savepoints.get
    patch.setattr(
        savepoints,
        "get",
        lambda *given: replace(found := whole(*given), end=found.safe, open=OpenPartitions()),
    )


def a_reissue_has_no_revision_of_its_own(patch: pytest.MonkeyPatch) -> None:
    """A consumer could not tell it from what it has."""
    patch.setattr(savepoint_restore, "greatest_revision", lambda _connection: -1)


def outputs_resolve_no_letters(patch: pytest.MonkeyPatch) -> None:
    """What a reissue sends under other rules is still said to be missing."""
    patch.setattr(covered_letters, "resolve", lambda *_given: 0)


def a_batch_begins_where_the_outbox_is(patch: pytest.MonkeyPatch) -> None:
    """Also while the one before it is not committed yet: its tasks are told what was open before that."""
    positions: dict[int, list[InputPosition]] = {}

    def committed(self: ResultReader) -> InputPosition:
        return positions[id(self)][-2:][0]

    def computed(self: ResultReader, position: InputPosition) -> None:
        positions.setdefault(id(self), []).append(position)

    patch.setattr(ResultReader, "expected", property(committed, computed), raising=False)


def letters_resolve_no_letters(patch: pytest.MonkeyPatch) -> None:
    """What a reissue judges again stands there twice."""
    patch.setitem(_LETTERS, "resolve_rewritten", "SELECT")


def zombies_are_not_fenced(patch: pytest.MonkeyPatch) -> None:
    """A run that was taken over continues where nobody else has written yet."""
    patch.setattr(ownership, "disowned", lambda *_given: None)


@pytest.mark.guarantee(42)
@pytest.mark.timeout(1_800)
@pytest.mark.parametrize(
    ("mutant", "kind", "seed"),
    [
        (nothing_is_found_again, "restores", 30),
        (any_file_of_the_cache_will_do, "restores", 30),
        (only_partitions_with_new_records_count, "restores", 31),
        (tombstones_stay_at_home, "restores", 32),
        (parts_begin_where_a_rebuild_begins, "losses", 35),
        (what_closed_before_is_told_again, "restores", 30),
        (new_rules_judge_old_events, "rules", 59),
        (the_newest_batch_is_that_of_sparks_greatest_number, "restores", 31),
        (an_unused_generation_is_passed_over, "restores", 31),
        (skip_goes_by_the_current_position, "restores", 58),
        (a_cut_is_not_remembered, "losses", 63),
        (a_cut_is_judged_by_the_current_position, "losses", 31),
        (a_savepoint_outlives_a_cut, "losses", 130),
        (a_reissue_begins_with_what_is_open, "restores", 31),
        (a_reissue_has_no_revision_of_its_own, "restores", 31),
        (outputs_resolve_no_letters, "rules", 33),
        (letters_resolve_no_letters, "restores", 32),
        (a_batch_begins_where_the_outbox_is, "restores", 30),
        (zombies_are_not_fenced, "restores", 30),
    ],
)
def test_each_rule_is_needed(
    run_history: RunHistory,
    monkeypatch: pytest.MonkeyPatch,
    mutant: Callable[[pytest.MonkeyPatch], None],
    kind: str,
    seed: int,
) -> None:
    """Without it some history ends wrong, or cannot continue. `seed`: where it was last found; those after it are tried, too."""
    mutant(monkeypatch)
    for tried in range(seed, seed + TRIES_FOR_A_MUTANT):
        try:
            found = run_history(tried, kind)
        except (TypeError, AttributeError, NameError):
            raise  # of the mutant itself, most likely: it no longer fits the code
        except (Exception, pytest.fail.Exception) as error:  # noqa: BLE001 - whatever the mutant leads to
            found = [f"{type(error).__name__}: {error}"]
        if found:
            print(f"history {tried}: {found[0]}")
            return
    pytest.fail(f"{TRIES_FOR_A_MUTANT} histories ended well without the rule")

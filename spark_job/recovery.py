"""Where a start resumes: the decision of design §3.4, made before Spark reads anything. Pure.

The checkpoint is disposable. A start goes on with the newest generation where its directory continues the ledger; else it opens a new
generation at the current position: reading restarts at the safe offsets, and what closes below `done` is not written again. What could
lose or repeat something needs a person's word first: then a ContinuityError names each finding and the flag that accepts it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from db.errors import ContinuityError
from spark_job.assembly import changes, with_parallelism
from spark_job.directory_fit import Fit
from spark_job.offsets import Offsets, TopicPartition
from spark_job.position import Position


@dataclass(frozen=True)
class Accepted:
    """What the person who starts the job has accepted: the flags of `spark-job run`."""

    outbox_behind: bool = False
    new_topic: bool = False
    data_loss: bool = False
    changed_assembly: bool = False
    new_generation: bool = False


@dataclass(frozen=True)
class Input:
    """What Kafka and the settings say of the input now."""

    topic_ids: Mapping[str, str]  # {topic: topic id}
    earliest: Offsets
    latest: Offsets
    assembly: Mapping[str, Any]  # `assembly.described` of the settings

    @property
    def names(self) -> dict[str, str]:
        """{topic id: topic}."""
        return {topic_id: topic for topic, topic_id in self.topic_ids.items()}


@dataclass(frozen=True)
class Finding:
    """Something that needs a new generation. `flag`: what accepts it, None where nothing can be lost or repeated."""

    reason: str
    text: str
    flag: str | None = None


@dataclass(frozen=True)
class Wanted:
    """A generation that somebody asked for: a restore or a rescale."""

    reason: str
    start: Offsets
    high_water: Offsets
    policy: str
    revision: int
    assembly: Mapping[str, Any]
    text: str
    savepoint: str | None = None


@dataclass(frozen=True)
class Resumption:
    """The newest generation goes on."""

    restored: str  # "checkpoint", "unused_generation" or "savepoint": as in outbox.run
    spark_batch: int  # the next batch that Spark runs
    resumes_at: Offsets
    read_again: int  # offsets, at the most
    text: str


@dataclass(frozen=True)
class Opening:
    """A new generation, still without number and directory."""

    reason: str
    start: Offsets
    high_water: Offsets
    policy: str
    revision: int
    assembly: Mapping[str, Any]
    read_again: int
    text: str
    savepoint: str | None = None
    cut: Offsets = field(default_factory=Offsets)  # from these offsets on, Kafka gives them out a second time
    lost: Mapping[TopicPartition, tuple[int, int]] = field(
        default_factory=dict
    )  # offsets [from, to) never read


def decide(
    position: Position,
    fit: Fit,
    now: Input,
    accepted: Accepted,
    *,
    greatest_revision: int,
    findings: Sequence[Finding] = (),
) -> Resumption | Opening:
    """Return how the job goes on from `position`, whose generation's directory is as `fit` says.

    `findings`: what was found beside the directory and the input. Raises ContinuityError where something is to be accepted first.
    """
    found = [*findings, *_of_directory(fit), *_of_input(position, now)]
    if accepted.new_generation:
        found.append(Finding("requested", "a new generation was asked for with --new-generation"))
    if not found:
        if not _deleted(fit.reads_from, position, now) and not _cut(position, now):
            return _resumption(position, fit)
        if _deleted(fit.reads_from, position, now) and not _deleted(position.safe, position, now):
            # The unfinished batch begins before the oldest open session, where Kafka keeps nothing any more.
            found.append(Finding("checkpoint_lost", f"Kafka has deleted what {fit.text} would read again"))
    return _opening(position, now, accepted, found, greatest_revision=greatest_revision)


def open_wanted(
    position: Position, wanted: Wanted, now: Input, accepted: Accepted, *, greatest_revision: int
) -> Opening:
    """Return the generation that was asked for. Raises ContinuityError where something is to be accepted first."""
    found = [Finding(wanted.reason, wanted.text), *_of_input(position, now, wanted.assembly)]
    gone = sorted(
        {where.topic_id for where in wanted.start} - {*now.topic_ids.values(), *position.generation.topics}
    )
    if gone:
        what = f"{wanted.text}, but the input topic that it reads is gone (topic id {', '.join(gone)})"
        found.append(Finding("data_loss", what, "--accept-data-loss"))
    return _opening(position, now, accepted, found, greatest_revision=greatest_revision, wanted=wanted)


def check_input(position: Position, now: Input, accepted: Accepted) -> None:
    """Raise ContinuityError where the topics or the session settings alone need a flag that is missing."""
    _require(_of_input(position, now), accepted)


def first(now: Input, start: Offsets, accepted: Accepted, findings: Sequence[Finding] = ()) -> Opening:
    """Return the first generation of an outbox. `start`: where `[source] starting_offsets` leads."""
    _require(findings, accepted)
    return Opening("first", start, start, "skip", 0, now.assembly, 0, "fresh start: the first generation")


def _opening(
    position: Position,
    now: Input,
    accepted: Accepted,
    found: list[Finding],
    *,
    greatest_revision: int,
    wanted: Wanted | None = None,
) -> Opening:
    start = wanted.start if wanted else position.safe
    high_water = wanted.high_water if wanted else position.done
    revision = wanted.revision if wanted else position.generation.revision
    deleted, cut = _deleted(start, position, now), _cut(position, now)
    if deleted or cut:
        found.append(Finding("data_loss", _loss(deleted, cut, now), "--accept-data-loss"))
    _require(found, accepted, wanted)
    if cut:
        # Offsets will be given out a second time: what they close must not count as done, nor look like what was sent before.
        high_water = high_water.lowered(Offsets({where: end for where, (end, _) in cut.items()}))
        revision = max(revision, greatest_revision) + 1
    # Topics that are read no more have no start; partitions that are new start at their earliest record.
    start = Offsets(
        {
            where: min(max(start.get(where, earliest), earliest), max(now.latest.at(where), earliest))
            for where, earliest in now.earliest.items()
        }
    )
    assembly = wanted.assembly if wanted else with_parallelism(now.assembly, position.generation.assembly)
    return Opening(
        reason=_weightiest(found),
        start=start,
        high_water=high_water,
        policy=wanted.policy if wanted else position.generation.policy,
        revision=revision,
        assembly=assembly,
        read_again=sum(max(0, position.done.at(where) - offset) for where, offset in start.items()),
        text="; ".join(finding.text for finding in found),
        savepoint=wanted.savepoint if wanted else None,
        cut=Offsets({where: end for where, (end, _) in cut.items()}),
        lost=deleted,
    )


def _resumption(position: Position, fit: Fit) -> Resumption:
    generation = position.generation
    if position.newest is not None:
        text = f"restored from the checkpoint of generation {generation.number}: {fit.text} is next"
        again = sum(max(0, position.end.at(where) - offset) for where, offset in fit.reads_from.items())
        return Resumption("checkpoint", fit.spark_batch, fit.reads_from, again, text)
    restored = "savepoint" if generation.reason == "savepoint" else "unused_generation"
    again = sum(max(0, generation.high_water.at(where) - o) for where, o in generation.start.items())
    text = f"generation {generation.number} ({generation.reason}) has committed nothing yet and is used as it stands"
    return Resumption(restored, 0, generation.start, again, text)


def _of_directory(fit: Fit) -> list[Finding]:
    if fit.kind == "lost":
        return [Finding("checkpoint_lost", fit.text)]
    if fit.kind == "ahead":
        return [Finding("outbox_behind", fit.text, "--accept-outbox-behind")]
    return []


def _of_input(position: Position, now: Input, assembly: Mapping[str, Any] | None = None) -> list[Finding]:
    generation = position.generation
    found = [
        Finding(
            "new_topic",
            f"input topic {topic!r} was deleted and made again: its id is {now.topic_ids[topic]}, generation {generation.number} reads "
            f"{old_id}. Sessions open in the old one cannot be completed ({_open(position, old_id)}); the new one is read from its "
            "earliest record on",
            "--accept-new-topic",
        )
        for old_id, topic in generation.topics.items()
        if now.topic_ids.get(topic, old_id) != old_id
    ]
    changed = changes(generation.assembly, now.assembly if assembly is None else assembly)
    if changed:
        found.append(
            Finding(
                "changed_assembly",
                f"the settings that decide what a session is changed since generation {generation.number} was opened: "
                f"{'; '.join(changed)}. Its open sessions are read again and judged by the new settings. What closed before "
                "stays as it is, and what only the new settings would close there is not written (restoring a savepoint "
                "with --policy reissue judges it again)",
                "--accept-changed-assembly",
            )
        )
    return found


def _open(position: Position, topic_id: str) -> str:
    first_open = {
        where.partition: position.safe.at(where)
        for where, done in position.done.items()  # not its end: a generation that still catches up has read less
        if where.topic_id == topic_id and position.safe.at(where) < done
    }
    if not first_open:
        return "none is open"
    return "open since " + ", ".join(f"partition {p}: offset {o}" for p, o in first_open.items())


def _deleted(start: Offsets, position: Position, now: Input) -> dict[TopicPartition, tuple[int, int]]:
    """What Kafka's retention has taken: {partition: [first, end)} of `start` on. An added partition of a topic is needed from 0 on."""
    return {
        where: (start.at(where), earliest)
        for where, earliest in now.earliest.items()
        if (where in start or where.topic_id in position.generation.topics) and start.at(where) < earliest
    }


def _cut(position: Position, now: Input) -> dict[TopicPartition, tuple[int, int]]:
    """Where the topic ends before what was read of it: {partition: (end now, done)}."""
    return {
        where: (latest, position.done.at(where))
        for where, latest in now.latest.items()
        if latest < position.done.at(where)
    }


def _loss(
    deleted: Mapping[TopicPartition, tuple[int, int]],
    cut: Mapping[TopicPartition, tuple[int, int]],
    now: Input,
) -> str:
    names = now.names
    texts = []
    if deleted:
        places = ", ".join(
            f"{names[w.topic_id]}/{w.partition}: offsets {a} to {b - 1} ({b - a})"
            for w, (a, b) in deleted.items()
        )
        texts.append(
            f"Kafka has deleted input that is still needed: {places}. Sessions that began there cannot be completed; what is left of "
            "those still open arrives as dead letters (no_start). A longer retention.ms prevents this"
        )
    if cut:
        places = ", ".join(
            f"{names[w.topic_id]}/{w.partition}: ends at {end}, was read up to {done}"
            for w, (end, done) in cut.items()
        )
        texts.append(
            f"Kafka has lost the end of the input: {places}. Offsets will be given out again; going on raises the revision, so that what "
            "they close cannot be taken for what was sent before"
        )
    return "; ".join(texts)


_FLAGS = {
    "--accept-outbox-behind": "outbox_behind",
    "--accept-new-topic": "new_topic",
    "--accept-data-loss": "data_loss",
    "--accept-changed-assembly": "changed_assembly",
}
# What stands in the generation's row where several things were found at once
_WEIGHT = (
    "savepoint",
    "rescale",
    "outbox_behind",
    "data_loss",
    "new_topic",
    "changed_assembly",
    "requested",
    "checkpoint_lost",
)


def _weightiest(found: Sequence[Finding]) -> str:
    return min((finding.reason for finding in found), key=_WEIGHT.index)


def _require(found: Sequence[Finding], accepted: Accepted, wanted: Wanted | None = None) -> None:
    """Raise ContinuityError unless each finding with a flag was accepted. `wanted`: what a command asked for."""
    refused = [f for f in found if f.flag is not None and not getattr(accepted, _FLAGS[f.flag])]
    if refused:
        flags = " ".join(dict.fromkeys(finding.flag for finding in refused if finding.flag))
        command = "spark-job run"
        if wanted and wanted.savepoint and flags == "--accept-data-loss":
            command = f"spark-job savepoint restore {wanted.savepoint} --policy {wanted.policy}"
        if wanted and wanted.reason == "rescale" and flags == "--accept-data-loss":
            to = wanted.assembly
            command = (
                f"spark-job rescale --buckets {to['buckets']} --shuffle-partitions {to['shuffle_partitions']}"
            )
        what = "what was asked for was not done" if wanted else "the job does not start by itself"
        raise ContinuityError(
            f"{what}, and nothing was written. "
            + ". ".join(finding.text for finding in refused)
            + f". Put right what was moved, or go on as described with: {command} {flags}"
        )

"""Build the `Slice` that each task of the next batch receives."""

from spark_job.assembly.refused_ids import NOTHING_REFUSED
from spark_job.assembly.slices import Slice
from spark_job.input.offsets import Offsets
from spark_job.input.source import source_number
from spark_job.input.topics import InputTopics
from spark_job.ledger.assembly_rules import rules_since
from spark_job.ledger.position import InputPosition


def slices_of(
    at: InputPosition,
    start: Offsets,
    end: Offsets,
    topics: InputTopics,
    accept_differing_at: Offsets,
    committed: InputPosition,
) -> dict[int, Slice]:
    """Return a slice for each partition with new offsets, by source number.

    `start` and `end`: of the batch. `accept_differing_at`: offsets at which rebuilt sessions may differ from the digest.
    `committed`: the committed position, at most one batch behind `at`.
    """
    index = {topic_id: number for number, topic_id in enumerate(topics.ids.values())}
    found = {}
    for where, until in end.items():
        begin = start.at(where)
        if begin == until:
            continue
        safe, opened, at_commit = at.safe(where), at.open.get(where), committed.open.get(where)
        found[source_number(index[where.topic_id], where.partition)] = Slice(
            topic=topics.names[where.topic_id],
            topic_id=where.topic_id,
            partition=where.partition,
            start=begin,
            end=until,
            safe=min(safe, begin) if where in at.end else begin,
            digest="" if opened is None else opened.digest,
            tombstones=b"" if opened is None else opened.tombstones,
            lineage=rules_since(at.generation, where, safe),
            accept_differing=begin == accept_differing_at.get(where),
            committed_digest="" if at_commit is None else at_commit.digest or "",
            keep_timed_out=opened is not None and opened.upgraded,
            refused=NOTHING_REFUSED if opened is None else opened.refused,
        )
    return found

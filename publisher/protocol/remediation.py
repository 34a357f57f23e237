"""What to do about a stopped lane: commands, the recommended one first. Pure text."""

import shlex
from dataclasses import dataclass

_COUNTS = "each says first how many events it sends again or skips (`--dry-run`: only says), and asks"

RESTORED = (
    "If the database can be brought to its newest state, do that and restart `publisher run`: nothing is lost or sent "
    "twice then. If it cannot: `publisher resume --from kafka` continues after the newest transaction that this ledger "
    "shares with Kafka, which repeats the least and skips nothing; where there is none, `publisher resume --from mirror` "
    "continues after what this database knows as delivered, `publisher resume --from batch N` sends from batch N on; "
    f"{_COUNTS}"
)
LOST = (
    "If the previous Kafka cluster still exists, set [kafka] bootstrap_servers (OUTBOX_KAFKA__BOOTSTRAP_SERVERS) to it and "
    "restart `publisher run`. If it does not: `publisher resume --from mirror` continues after what Postgres recorded as "
    "delivered and sends none of it again; `publisher resume --from beginning` or `--from batch N` fills Kafka again from "
    f"the outbox; {_COUNTS}"
)
SET_BACK = (
    "If the newer state of Kafka can be restored, restore it and restart `publisher run`. If it cannot: `publisher resume "
    "--from kafka` continues after what Kafka still has and sends again what it lost; `publisher resume --from mirror`, "
    "where only the progress topic was set back and the events are there, continues after what Postgres recorded; "
    f"{_COUNTS}"
)
FORGED = (
    "Find out who writes to it and revoke that right; `publisher resume --from mirror` then continues after what Postgres recorded as "
    f"delivered; {_COUNTS}"
)
OTHER_CLUSTER = (
    "If that is not intended, correct [kafka] bootstrap_servers (OUTBOX_KAFKA__BOOTSTRAP_SERVERS) and restart "
    "`publisher run`. If the previous cluster is gone for good: `publisher resume --from mirror --accept-new-cluster` continues "
    "here after what Postgres recorded as delivered there; `publisher resume --from beginning --accept-new-cluster`, or "
    f"`--from batch N`, fills this cluster from the outbox; {_COUNTS}. Then restart `publisher run`"
)
COPIED_TOPIC = (
    "If that is not intended, correct [kafka] bootstrap_servers (OUTBOX_KAFKA__BOOTSTRAP_SERVERS) and restart "
    "`publisher run`. If the previous cluster is gone for good: `publisher resume --from kafka --accept-new-cluster` continues "
    "after the newest transaction that was copied; `publisher resume --from mirror --accept-new-cluster` after what Postgres "
    f"recorded; {_COUNTS}. Then restart `publisher run`"
)
OTHER_SERVER = (
    "If that is not intended, correct [postgres] dsn (OUTBOX_POSTGRES__DSN) and restart `publisher run`. Once the original is "
    "gone for good and this copy is its newest state: `publisher resume --from kafka --accept-new-server` records the new "
    "server and continues after the newest transaction that this ledger shares with Kafka, which repeats the least and skips "
    f"nothing; {_COUNTS}. Then restart `publisher run`"
)
GAP = (
    "Bring back the database's newest state and restart `publisher run`. If that is impossible: `publisher resume --from "
    "batch {next_batch}` continues behind batch {present}, the first one after the gap, and `publisher replay start --from-batch "
    "{present} --to-batch {present}` sends that one's events; the events of the missing batches are lost unless the job makes them again. "
    "`publisher status` shows every lane"
)


def park_command(topic: str) -> str:
    """Return the command that parks the rows for a missing topic. The topic's name may be any text, so it is quoted."""
    return f"publisher parked park --topic {shlex.quote(topic)}"


def replay_command(topic: str) -> str:
    """Return the command that sends a topic's outputs again."""
    return f"publisher replay start --topic {shlex.quote(topic)}"


def replaced_topic(name: str) -> str:
    """Return what to do about an output topic that was deleted and created again."""
    return (
        f"If that was intended: `publisher resume --from kafka --accept-new-topic {shlex.quote(name)}` continues with the new topic, and "
        f"`{replay_command(name)}` sends again what the old one had. `publisher resume` says first what it will "
        "do, and asks"
    )


@dataclass(frozen=True, slots=True)
class Remediation:
    """What to do if Kafka and Postgres have different histories. `subject`: whose delivery is stopped."""

    subject: str
    lost: str
    set_back: str
    restored: str
    copied_topic: str
    other_outbox: str
    forged: str


LANE = Remediation(
    "this lane",
    LOST,
    SET_BACK,
    RESTORED,
    COPIED_TOPIC,
    f"Give each outbox its own [publisher] progress_topic. {FORGED}",
    FORGED,
)


def of_replay(replay_id: int) -> Remediation:
    """Return what to do about a replay. A replay cannot be moved as a lane can."""
    anew = (
        f"It is no longer known what it has sent, so it cannot continue. `publisher replay cancel {replay_id}` and start a new one for "
        "the rest; consumers tell the two apart by the header outbox-replay, and deduplicate on outbox-id"
    )
    return Remediation(f"replay {replay_id}", anew, anew, anew, anew, anew, anew)

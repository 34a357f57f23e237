"""What a resume finds of one lane, in Kafka and in Postgres."""

from uuid import UUID

from contract.cursor import Cursor
from contract.progress import Progress, Totals
from publisher.protocol.epochs import Epoch
from publisher.protocol.history_check import Identity, Mirror
from publisher.resume.decision import LaneSurvey

OUTBOX, COMMIT = UUID(int=1), UUID(int=2)
NOTHING = Cursor(0)
IDENTITY = Identity(OUTBOX, "cluster")


def record(seq: int, cursor: Cursor, events: int = 0, resumed: str | None = None) -> Progress:
    return Progress(
        OUTBOX, "cluster", 1, 0, seq, Cursor(0), cursor, COMMIT, 0, 0, 0, Totals(events, events), resumed
    )


def found(
    newest: Progress | None = None, shared: Progress | None = None, seq: int = 0, cursor: Cursor = NOTHING
) -> LaneSurvey:
    return LaneSurvey(
        Epoch(1, 1, 1),
        None,
        0,
        newest,
        shared,
        from_start=False,
        later={},
        mirror=Mirror(seq, cursor, seq),
        mirror_total=Totals(),
        mirror_sound=True,
        stopped=False,
    )

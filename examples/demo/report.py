"""The end of the demo: the input and the output read back, the verdict, and one session followed all the way."""

from dataclasses import dataclass

from pydantic import SecretStr
from rich.console import Console
from rich.markup import escape

from examples.clickstream import show
from examples.clickstream.reading import KafkaRecord, read_topic, topic_id
from examples.clickstream.topics import CLICKS, CONFIG, INPUT, OUTPUT
from examples.clickstream.transform import FUNNEL, SESSIONS, transform
from examples.demo import display
from examples.demo.expected import Expected, expect
from examples.demo.outbox import Outbox
from examples.demo.verdict import Verdict, judge
from service.settings import KafkaSettings, PostgresSettings, load_settings

_ROWS = 3
_FINDINGS = 20


@dataclass(frozen=True)
class Result:
    """What was read back and what it means."""

    inputs: list[KafkaRecord]
    outputs: list[KafkaRecord]
    expected: Expected
    verdict: Verdict

    def last_line(self) -> str:
        """The demo's verdict in one line."""
        return (
            f"demo: input_events={len(self.inputs)} sessions={self.expected.sessions} "
            f"output_events={len(self.expected.outputs)} delivered={self.verdict.delivered} "
            f"missing={self.verdict.missing} duplicates={self.verdict.duplicates}"
        )


def examine(kafka: KafkaSettings, outbox: Outbox) -> Result:
    """Read all topics back, compute from the input what must have come out, and compare. Raises ReadError."""
    inputs = [record for topic in INPUT for record in read_topic(kafka, topic)]
    outputs = [record for topic in OUTPUT for record in read_topic(kafka, topic)]
    topic_ids = {topic: topic_id(kafka, topic) for topic in INPUT}
    expected = expect(inputs, topic_ids, load_settings(CONFIG).session, transform)
    return Result(inputs, outputs, expected, judge(expected, outputs, outbox.letters()))


def tell(console: Console, result: Result, outbox: Outbox, dsn: str) -> None:
    """Print the dead letters, one session's way, and the first twenty differences found."""
    console.print()
    console.print(display.letters(outbox.letter_table()))
    key = a_purchase(result)
    if key is not None:
        records = [record for record in result.inputs if record.key == key.encode()]
        sent = [r for r in result.outputs if r.key == key.encode() and r.topic == FUNNEL]
        rows = show.outbox_rows(PostgresSettings(dsn=SecretStr(dsn)), key)
        command = f"python -m examples.clickstream.show --session-key {key}"
        for options, table in (
            (f"--topic {CLICKS}", show.record_table(_ends(records))),
            ("--outbox", show.row_table(rows[:_ROWS])),
            (f"--topic {FUNNEL}", show.record_table(sent[:_ROWS])),
        ):
            console.print(f"\n[bold]$ {command} {options}[/]", highlight=False, soft_wrap=True)
            table.print(console)
        console.print(
            f"\n({len(records)} input events became {len(rows)} output events; some are shown.)",
            highlight=False,
        )
    for finding in result.verdict.findings[:_FINDINGS]:
        console.print(f"[bold red]{finding.kind}[/]: {escape(finding.what)}", soft_wrap=True)
    hidden = len(result.verdict.findings) - _FINDINGS
    if hidden > 0:
        console.print(f"[bold red]and {hidden} more[/]")


def a_purchase(result: Result) -> str | None:
    """Key of a session of the sample clickstream that ended in a purchase, else of any session; None without any."""
    ids = {
        output.outbox_id
        for output in result.expected.outputs
        if b'"outcome":"purchase"' in (output.value or b"")
    }
    keys = [output.key for output in result.expected.outputs if output.topic == SESSIONS]
    bought = [
        output.key
        for output in result.expected.outputs
        if output.outbox_id in ids and output.key.startswith(b"sess_")
    ]
    found = bought or keys
    return found[0].decode() if found else None


def _ends(records: list[KafkaRecord]) -> list[KafkaRecord]:
    return records if len(records) <= _ROWS else [*records[: _ROWS - 1], records[-1]]

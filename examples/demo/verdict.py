"""Compares what came out with what must come out, and names every difference."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from examples.clickstream.reading import KafkaRecord
from examples.demo.expected import Expected, Letter, Output

_Content = tuple[str, bytes | None, bytes | None]


@dataclass(frozen=True)
class Finding:
    """One difference. `kind`: lost, duplicated, altered, unknown, reordered, or a letter that is missing or too many."""

    kind: str
    what: str


@dataclass(frozen=True)
class Verdict:
    """The result. Clean means: no findings of any kind."""

    delivered: int
    missing: int
    duplicates: int
    findings: Sequence[Finding]

    @property
    def clean(self) -> bool:
        """Whether everything is there once, unchanged and in order."""
        return not (self.findings or self.missing or self.duplicates)


def judge(expected: Expected, received: Sequence[KafkaRecord], letters: Iterable[Letter]) -> Verdict:
    """Compare outputs (as a multiset of topic, key and bytes; by outbox-id; in order for each key) and dead letters.

    `received` are the output topics' records in offset order within each partition, `letters` those in the outbox.
    """
    wanted = Counter(_wanted(output) for output in expected.outputs)
    got = Counter(_got(record) for record in received)
    by_id = {output.outbox_id: output for output in expected.outputs}
    seen = Counter(_outbox_id(record) for record in received)
    missing = wanted - got
    surplus = got - wanted
    findings = [
        *_repeated(seen),
        *_altered_and_unknown(by_id, received),
        *_lost(by_id, seen),
    ]
    # The contents count by themselves, so that a wrong outbox-id cannot hide a wrong content, or the other way round.
    named = {finding.kind for finding in findings}
    if missing and not named & {"lost", "altered"}:
        findings.append(Finding("lost", f"{missing.total()} contents, for example {next(iter(missing))}"))
    if surplus and not named & {"duplicated", "altered", "unknown"}:
        findings.append(
            Finding("duplicated", f"{surplus.total()} contents, for example {next(iter(surplus))}")
        )
    findings += _reordered(expected.outputs, received)
    findings += _letters(expected, list(letters))
    repeats = sum(count - 1 for count in seen.values())
    copies = sum(count for content, count in surplus.items() if content in wanted)
    return Verdict(len(received), missing.total(), max(repeats, copies), findings)


def _wanted(output: Output) -> _Content:
    return output.topic, output.key, output.value


def _got(record: KafkaRecord) -> _Content:
    return record.topic, record.key, record.value


def _outbox_id(record: KafkaRecord) -> str:
    return record.headers.get("outbox-id", b"(no outbox-id)").decode()


def _repeated(seen: Counter[str]) -> list[Finding]:
    return [Finding("duplicated", f"{name} came {count} times") for name, count in seen.items() if count > 1]


def _altered_and_unknown(by_id: dict[str, Output], received: Sequence[KafkaRecord]) -> list[Finding]:
    findings = []
    for record in received:
        name = _outbox_id(record)
        where = f"{name} at {record.topic}/{record.partition}/{record.offset}"
        output = by_id.get(name)
        if output is None:
            findings.append(Finding("unknown", f"{where} is nothing that the input calls for"))
        elif _wanted(output) != _got(record):
            findings.append(Finding("altered", f"{where}: {_got(record)} instead of {_wanted(output)}"))
    return findings


def _lost(by_id: dict[str, Output], seen: Counter[str]) -> list[Finding]:
    return [
        Finding("lost", f"{name} for topic {output.topic}, key {output.key!r}")
        for name, output in by_id.items()
        if name not in seen
    ]


def _reordered(outputs: Sequence[Output], received: Sequence[KafkaRecord]) -> list[Finding]:
    """Order for each topic and key, judged on the ids that both sides have; repeats count where they came first."""
    wanted: dict[tuple[str, bytes], list[str]] = defaultdict(list)
    for output in outputs:
        wanted[output.topic, output.key].append(output.outbox_id)
    got: dict[tuple[str, bytes], dict[str, None]] = defaultdict(dict)
    for record in received:
        got[record.topic, record.key or b""].setdefault(_outbox_id(record))
    findings = []
    for (topic, key), names in wanted.items():
        came = got[topic, key]
        known = set(names)
        if [name for name in came if name in known] != [name for name in names if name in came]:
            findings.append(
                Finding("reordered", f"topic {topic}, key {key!r}: {list(came)} instead of {names}")
            )
    return findings


def _letters(expected: Expected, found: list[Letter]) -> list[Finding]:
    wanted, got, may_be = Counter(expected.letters), Counter(found), Counter(expected.unfinished)
    return [
        *(Finding("letter missing", str(letter)) for letter in (wanted - got).elements()),
        *(Finding("letter too many", str(letter)) for letter in (got - wanted - may_be).elements()),
    ]

"""What is fuzzed: each target takes any bytes, and fails where the product would."""

from collections.abc import Callable
from pathlib import Path

from tests.support.bad_input.accounting import check_log
from tests.support.bad_input.kept import check_cache
from tests.support.bad_input.logs import log_of
from tests.support.bad_input.records import check_record
from tests.support.bad_input.schemas import check_schema
from tests.support.bad_input.settings import check_settings
from tests.support.paths import ROOT

CORPUS = ROOT / "tests" / "fuzz" / "corpus"
"""A folder for each target: inputs that together reach everything that was ever reached, and those that once failed."""


def _check_events(data: bytes) -> None:
    check_log(log_of(data))


TARGETS: dict[str, Callable[[bytes], object]] = {
    "events": _check_events,
    "settings": check_settings,
    "records": check_record,
    "cache": check_cache,
    "schemas": check_schema,
}

TOKENS: dict[str, list[bytes]] = {
    "events": [
        *(
            b"\x1d\xff",
            b"\x1e",
            b"\x1f",
            b'"',
            b"{",
            b"}",
            b"[\x1d\x80",
            b"]\x1d\x80",
            b",",
            b":",
            b"\\",
            b" ",
            b"\n",
            b"\0",
        ),
        *(
            b"NaN",
            b"-Infinity",
            b"1e999",
            b"-0.0",
            b"1" * 20,
            b"1.5",
            b"null",
            b"true",
            b"\xff",
            b"\xef\xbb\xbf",
            b"//",
            b"\xc0\x80",
        ),
        *(
            b"\\u0000",
            b"\\ud800",
            b"\\udc00",
            b"\\ud83d\\ude00",
            b"\xed\xa0\x80",
            b"\\u0061",
            b',"n":',
            b',"z":[',
            b"{}",
            b"}{",
        ),
        *(
            b'"event_type":',
            b'"session_key":',
            b'"id":',
            b'"time":',
            b'"d":',
            b"start_event",
            b"entry_event",
            b"end_event",
        ),
        *(
            b"2026-02-30T00:00:00Z",
            b"0000-01-01T00:00:00",
            b"9999-12-31T23:59:59.999-23:59",
            b"9223372036854775808",
        ),
    ],
    "settings": [
        *(
            b"\x1e",
            b"=",
            b'"',
            b"\n",
            b"[",
            b"]",
            b"{",
            b"}",
            b"\x80",
            b"1e999",
            b"nan",
            b"-inf",
            b"1" * 20,
            b"0x1",
            b"1979-05-27",
        ),
        *(
            b"__",
            b"_env_file",
            b"_cli_parse_args=true",
            b"JOB__TASKS=",
            b"SOURCE__TOPICS=",
            b"KAFKA__OPTIONS=",
            b"JOB=",
            b'["a"]',
            b'{"a":1}',
        ),
        *(
            b"[session]\n",
            b"[postgres]\n",
            b"[kafka]\n",
            b"[kafka.options]\n",
            b"[job]\n",
            b"[publisher]\n",
            b'key = "$.a"\n',
            b'type = "$.a.b"\n',
        ),
        *(
            b'dsn = "',
            b"postgresql://u:p@h/db",
            b'dsn_file = "',
            b"timeout_s = ",
            b"event_id = ",
            b"header:",
            b"secret_options_file = ",
        ),
    ],
    "records": [
        *(
            b"{",
            b"}",
            b"[",
            b"]",
            b",",
            b"null",
            b"true",
            b"1e9",
            b"-1",
            b"1" * 20,
            b'"\\u0000"',
            b'"a"',
            b"[1,null]",
            b"/",
            b"1" * 5000,
        ),
        *(
            b'"version":1',
            b'"outbox_uuid":',
            b'"cursor":',
            b'"after":',
            b'"commit_id":',
            b'"total":',
            b'"topics":',
            b'"epoch":',
        ),
        b'"00000000-0000-0000-0000-000000000001"',
    ],
    "cache": [
        b"\x1e",
        b"\0" * 8,
        b"\xff" * 8,
        b"\x01" + b"\0" * 7,
        b"[" * 200,
        b'"]',
        b"../",
        b"\x7f" + b"\xff" * 7,
    ],
    "schemas": [
        *(
            b"\x1e",
            b"\0",
            b"\2",
            b"\1",
            b"\xff",
            b"\x80",
            b"\x0a",
            b"\x0a\0",
            b"{",
            b"}",
            b"[",
            b"]",
            b",",
            b":",
            b'"',
        ),
        *(
            b'{"type":"record","name":"R","fields":[',
            b'{"name":"session_key","type":"string"},',
            b'{"name":"event_type","type":"string"},',
            b'{"name":"time","type":"long"},',
            b'{"name":"x","type":',
            b"]}",
        ),
        *(
            b'"null"',
            b'"string"',
            b'"bytes"',
            b'"R"',
            b'["null",',
            b'{"type":"array","items":',
            b'{"type":"map","values":',
            b'{"type":"fixed","name":"F","size":',
            b'{"type":"enum","name":"E","symbols":["start_event"]}',
            b',"logicalType":"decimal","precision":9',
            b"-8",
            b"1" * 20,
        ),
        *(
            b"start_event",
            b'"session_key":"k"',
            b'"event_type":"start_event"',
            b'"time":1',
            b"\x12proto3",
            b"google/type/date.proto",
        ),
    ],
}
"""What a target's inputs are made of, for those that put them together."""


def corpus(target: str) -> list[Path]:
    """Return the kept inputs of a target."""
    return sorted((CORPUS / target).iterdir())

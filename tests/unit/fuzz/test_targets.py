"""Whatever is in a record, a settings file, the environment or the cache: it is accounted for, or refused in words; nothing crashes."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.fuzz.targets import CORPUS, TARGETS, corpus, tokens

PROFILE = settings(max_examples=40, derandomize=True, deadline=None, suppress_health_check=list(HealthCheck))
BYTE = st.binary(min_size=1, max_size=1)


def inputs(target: str) -> st.SearchStrategy[bytes]:
    """Tokens of a target and single bytes, in any order."""
    return st.lists(st.sampled_from(tokens(target)) | BYTE, max_size=60).map(b"".join)


def test_there_is_a_corpus_for_each_target_and_for_nothing_else() -> None:
    assert {folder.name for folder in CORPUS.iterdir()} == set(TARGETS)


@pytest.mark.guarantee(13)
@pytest.mark.parametrize("target", TARGETS)
def test_every_input_that_was_kept_is_accounted_for_or_refused_in_words(target: str) -> None:
    kept = corpus(target)
    assert len(kept) > 10
    for file in kept:
        try:
            TARGETS[target](file.read_bytes())
        except Exception as error:
            error.add_note(f"with {file}")
            raise


@pytest.mark.guarantee(125)
@pytest.mark.parametrize("target", TARGETS)
@PROFILE
@given(data=st.data())
def test_any_input_is_accounted_for_or_refused_in_words(target: str, data: st.DataObject) -> None:
    TARGETS[target](data.draw(inputs(target)))


@pytest.mark.guarantee(13)
@PROFILE
@given(
    rules=BYTE,
    records=st.lists(st.tuples(st.binary(min_size=2, max_size=2), inputs("events")), min_size=1, max_size=8),
)
def test_any_log_of_events_and_rubbish_is_accounted_for(
    rules: bytes, records: list[tuple[bytes, bytes]]
) -> None:
    TARGETS["events"](rules + b"\x1e".join(what + text for what, text in records))

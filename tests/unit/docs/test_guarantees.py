"""docs/guarantees.md: tests say that they check each promise, or the page says plainly why none does."""

from collections import Counter

from tests.support.pages.guarantees import guarantee_tests, promises, untested


def test_every_promise_has_a_test_or_a_reason_why_it_has_none() -> None:
    checked = {number for test in guarantee_tests() for number in test.promises}
    assert len(promises()) > 100
    assert promises().keys() - checked == untested().keys()


def test_a_test_names_promises_that_exist_once_each() -> None:
    wrong = {
        (test.path, test.name): test.promises
        for test in guarantee_tests()
        if set(test.promises) - promises().keys() or max(Counter(test.promises).values()) > 1
    }
    assert wrong == {}


def test_no_number_is_left_out() -> None:
    assert sorted(promises()) == list(range(1, len(promises()) + 1))

"""One module of each package reads the headers of a record, in a way that a name that is not UTF-8 cannot end the process."""

import ast

import pytest

from tests.support.paths import ROOT

PRODUCT = ("publisher", "spark_job", "service", "db", "contract", "outbox_consumer")
METHOD = "headers"


def found_in(text: str) -> list[str]:
    """Return the code that calls `Message.headers`, or takes it to call it."""
    return [ast.unparse(node) for node in ast.walk(ast.parse(text)) if _is_taken(node)]


def _is_taken(node: ast.AST) -> bool:
    if isinstance(node, ast.Call):
        by_name = ast.unparse(node.func).split(".")[-1] in ("methodcaller", "attrgetter", "getattr")
        named = by_name and any(isinstance(each, ast.Constant) and each.value == METHOD for each in node.args)
        # It takes no arguments; a function of that name may.
        is_method = isinstance(node.func, ast.Attribute) and node.func.attr == METHOD
        return named or (is_method and not node.args and not node.keywords)
    return isinstance(node, ast.Attribute) and ast.unparse(node).endswith(f"Message.{METHOD}")


@pytest.mark.parametrize(
    "code",
    [
        "message.headers()",
        "dict(found[0].headers() or [])",
        "map(Message.headers, messages)",
        "confluent_kafka.Message.headers",
        "methodcaller('headers')(message)",
        "getattr(message, 'headers')()",
    ],
)
def test_the_rule_knows_what_it_forbids(code: str) -> None:
    assert found_in(code)
    assert not found_in(
        "headers_of(message); cloud_events.headers(row, key); request.headers['accept']; OutputEvent(headers=headers)"
    )


def test_one_module_of_each_package_reads_the_headers_of_a_record() -> None:
    modules = [path for folder in PRODUCT for path in (ROOT / folder).rglob("*.py")]
    found: dict[str, list[str]] = {}
    for path in modules:
        if taken := found_in(path.read_text("utf-8")):
            found[str(path.relative_to(ROOT))] = taken
    # The consumer's library imports nothing of the services.
    assert found == {
        "service/kafka/record_headers.py": ["methodcaller('headers')"],
        "outbox_consumer/outputs.py": ["methodcaller('headers')"],
    }

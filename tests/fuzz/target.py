"""`python -m tests.fuzz.target NAME …`: one target under Atheris; the rest is libFuzzer's command line."""

import sys

import atheris

_PRODUCT = ["spark_job", "publisher", "service", "tomllib", "pydantic_settings"]
with atheris.instrument_imports(include=_PRODUCT):
    from tests.fuzz.targets import TARGETS


def main() -> None:
    """Run until libFuzzer ends the process."""
    _, name, *options = sys.argv
    # libFuzzer runs itself again by this name when it merges.
    atheris.Setup([f"{sys.executable} -m tests.fuzz.target {name}", *options], TARGETS[name])
    atheris.Fuzz()


if __name__ == "__main__":
    main()

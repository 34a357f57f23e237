"""A process has a host and a user to show, whatever the machine knows of them."""

import os
import pwd
import socket

import pytest

from service.lifecycle.process import host_name, user_name


@pytest.mark.parametrize(
    ("given", "shown"), [("node-1", "node-1"), ("", "unnamed"), ("a\udcff\x1b[1m", "a\\udcff\\x1b[1m")]
)
def test_a_host_has_a_name_that_postgres_takes(
    monkeypatch: pytest.MonkeyPatch, given: str, shown: str
) -> None:
    monkeypatch.setattr(socket, "gethostname", lambda: given)
    assert host_name() == shown
    assert host_name().encode()


@pytest.mark.parametrize("given", [None, ""])
def test_a_user_without_a_name_has_its_number(monkeypatch: pytest.MonkeyPatch, given: str | None) -> None:
    def entry(user: int) -> pwd.struct_passwd:
        if given is None:
            raise KeyError(user)
        return pwd.struct_passwd((given, "x", user, 0, "", "/", "/bin/sh"))

    monkeypatch.setattr(pwd, "getpwuid", entry)
    assert user_name() == str(os.geteuid())

"""Every thread of both services is begun again when it fails, or answers to somebody who waits for it."""

import ast
import threading

from structlog.testing import capture_logs

from service.lifecycle.threads import supervised
from tests.support.paths import ROOT

DEADLINE_S = 30

ANSWERS_TO_SOMEBODY = {
    ("publisher/assignment/lane_workers.py", "lane-"),  # LaneWorkers.raise_bug
    ("publisher/assignment/heartbeat.py", "heartbeat"),  # ProcessHeartbeat.failed
    ("service/observability/http_server.py", "endpoint page"),  # whoever asked gets a 500
    ("service/lifecycle/threads.py", "name"),
    ("spark_job/sink/commit_thread.py", "commit"),  # CommitThread.failure
    ("spark_job/spark/lazy_session.py", "spark start"),  # LazySession.get
}
"""Module and name of the threads that `supervised` did not make."""


def test_a_thread_that_fails_is_begun_again_until_its_work_has_ended() -> None:
    runs: list[int] = []

    def run() -> None:
        runs.append(1)
        if len(runs) < 4:
            raise KeyError("a column")

    with capture_logs() as logs:
        thread = supervised(run, "a thread", threading.Event())
        thread.start()
        thread.join(DEADLINE_S)
    assert not thread.is_alive()
    assert len(runs) == 4
    assert [(line["event"], line["thread"]) for line in logs] == [("thread_failed", "a thread")] * 3


def test_an_end_does_not_wait_for_the_pause() -> None:
    ended, failed = threading.Event(), threading.Event()

    def run() -> None:
        failed.set()
        raise KeyError("a column")

    thread = supervised(run, "a thread", ended)
    thread.start()
    assert failed.wait(DEADLINE_S)
    ended.set()
    thread.join(DEADLINE_S)
    assert not thread.is_alive()


def test_no_other_thread_is_left_to_itself() -> None:
    found = set()
    for package in ("db", "publisher", "service", "spark_job"):
        for module in (ROOT / package).rglob("*.py"):
            for node in ast.walk(ast.parse(module.read_text("utf-8"))):
                if isinstance(node, ast.Call):
                    made = ast.unparse(node.func).rpartition(".")[2]
                    if made in {"Thread", "Timer", "ThreadPoolExecutor", "start_new_thread"}:
                        found.add((module.relative_to(ROOT).as_posix(), _name(node)))
    assert found == ANSWERS_TO_SOMEBODY


def _name(call: ast.Call) -> str:
    for keyword in call.keywords:
        if keyword.arg in {"name", "thread_name_prefix"}:
            return ast.unparse(keyword.value).strip("f'\"").partition("{")[0]
    return ""

"""A command asks the running job: whatever becomes of the job, the command says what was done."""

import threading
from collections.abc import Callable, Iterator
from uuid import UUID, uuid4

import psycopg
import pytest
from typer.testing import CliRunner

from db.connection import Connection
from service.errors import UnavailableError
from service.settings import JobSettings
from spark_job.cli import app
from spark_job.commands import request_client
from spark_job.ledger import ownership, requests
from spark_job.ledger.requests import JobRequest

SETTINGS = JobSettings()
ROLE = "-c role=outbox_writer"
TIMEOUT_S = 60.0


class Job:
    """The part of a job that owns the outbox and answers, without Spark."""

    def __init__(self, database: str) -> None:
        self.connection = psycopg.connect(
            database, autocommit=True, options=ROLE, application_name="spark-job"
        )
        self.run_id = self.own()

    def own(self) -> UUID:
        """Take the outbox over as a new run."""
        self.run_id = uuid4()
        with self.connection.transaction():
            ownership.take_over(self.connection, self.run_id, SETTINGS, force=True)
        return self.run_id

    def asked(self) -> JobRequest:
        """Wait for a request to the current run."""
        waited = threading.Event()
        for _ in range(int(TIMEOUT_S / 0.02)):
            if (request := requests.pending(self.connection, self.run_id)) is not None:
                return request
            waited.wait(0.02)
        raise AssertionError("nothing was asked")


@pytest.fixture
def job(database: str) -> Iterator[Job]:
    job = Job(database)
    yield job
    job.connection.close()


class Asking:
    """A command that asks, in a thread."""

    def __init__(
        self, connection: Connection, job: Job, kind: requests.Kind, timeout_s: float = TIMEOUT_S
    ) -> None:
        self.answer: str | None = "not yet"
        self.error: Exception | None = None
        self._thread = threading.Thread(target=self._run, args=(connection, job.run_id, kind, timeout_s))
        self._thread.start()

    def _run(self, connection: Connection, run_id: UUID, kind: requests.Kind, timeout_s: float) -> None:
        try:
            self.answer = request_client.ask(connection, run_id, kind, {}, timeout_s=timeout_s)
        except Exception as error:  # noqa: BLE001 - looked at by the test
            self.error = error

    def end(self) -> None:
        self._thread.join(TIMEOUT_S)
        assert not self._thread.is_alive()


def test_the_answer_of_the_run_comes_back(connection: Connection, job: Job) -> None:
    found = Asking(connection, job, "stop")
    requests.answer(job.connection, job.asked().request_id, "done", "stopped")
    found.end()
    assert (found.answer, found.error) == ("stopped", None)


def test_a_refusal_is_an_error_with_the_jobs_reason(connection: Connection, job: Job) -> None:
    found = Asking(connection, job, "restore")
    requests.answer(job.connection, job.asked().request_id, "refused", "no such savepoint")
    found.end()
    assert isinstance(found.error, request_client.NotDoneError)
    assert "no such savepoint" in str(found.error)


def test_the_next_run_of_the_process_answers_as_it_takes_the_outbox(connection: Connection, job: Job) -> None:
    found = Asking(connection, job, "restore")
    request = job.asked()
    ownership.give_back(job.connection, job.run_id)
    with job.connection.transaction():
        job.run_id = uuid4()
        ownership.take_over(job.connection, job.run_id, SETTINGS, force=False)
        requests.answer(job.connection, request.request_id, "done", "restored")
    found.end()
    assert (found.answer, found.error) == ("restored", None)


@pytest.mark.guarantee(126)
def test_a_run_that_takes_its_place_without_an_answer_is_told(connection: Connection, job: Job) -> None:
    found = Asking(connection, job, "restore")
    job.asked()
    job.own()
    found.end()
    assert isinstance(found.error, UnavailableError)
    assert f"run {job.run_id} owns the outbox now" in str(found.error)


@pytest.mark.guarantee(126)
@pytest.mark.parametrize("kind", ["stop", "restore"])
def test_a_job_that_dies_is_told_at_once(connection: Connection, job: Job, kind: requests.Kind) -> None:
    found = Asking(connection, job, kind)
    job.asked()
    job.connection.close()
    found.end()
    assert isinstance(found.error, UnavailableError)
    assert "died before it answered" in str(found.error)


def test_a_process_that_dies_between_two_runs_is_told(
    database: str, connection: Connection, job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(request_client, "GONE_S", 1.0)
    found = Asking(connection, job, "restore")
    request = job.asked()
    ownership.give_back(job.connection, job.run_id)
    job.connection.close()
    found.end()
    assert isinstance(found.error, UnavailableError)
    assert "no job runs now" in str(found.error)
    with psycopg.connect(database) as late, pytest.raises(requests.WithdrawnError):
        requests.answer(late, request.request_id, "done", "too late")


def test_a_run_that_was_to_stop_and_ended_by_itself_is_no_error(connection: Connection, job: Job) -> None:
    found = Asking(connection, job, "stop")
    job.asked()
    ownership.give_back(job.connection, job.run_id)
    found.end()
    assert (found.answer, found.error) == (None, None)


def ask_running(connection: Connection, job: Job, waiting: Callable[[float], None]) -> None:
    request_client.ask(connection, job.run_id, "stop", {}, timeout_s=TIMEOUT_S, waiting=waiting)


def ask_between_attempts(connection: Connection, job: Job, waiting: Callable[[float], None]) -> None:
    ownership.give_back(job.connection, job.run_id)
    request_client.ask_between_attempts(
        connection, job.run_id, {}, settings=SETTINGS, patience_s=TIMEOUT_S, waiting=waiting
    )


@pytest.mark.parametrize("ask", [ask_running, ask_between_attempts])
def test_an_interrupted_command_withdraws_its_request(
    connection: Connection, job: Job, ask: Callable[..., None]
) -> None:
    def interrupt(_waited_s: float) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        ask(connection, job, interrupt)
    assert requests.pending(job.connection, job.run_id) is None


@pytest.mark.guarantee(126)
@pytest.mark.parametrize("ask", [ask_running, ask_between_attempts])
def test_a_command_interrupted_after_the_answer_reports_the_answer(
    connection: Connection, job: Job, ask: Callable[..., None]
) -> None:
    def interrupt(_waited_s: float) -> None:
        requests.answer(job.connection, job.asked().request_id, "done", "stopped")
        raise KeyboardInterrupt

    with pytest.raises(
        request_client.AnsweredError, match="interrupted, but the job has already answered: done: stopped"
    ):
        ask(connection, job, interrupt)


@pytest.mark.parametrize("ask", [ask_running, ask_between_attempts])
def test_a_command_interrupted_while_postgres_fails_says_that_the_outcome_is_unknown(
    connection: Connection, job: Job, ask: Callable[..., None]
) -> None:
    def interrupt(_waited_s: float) -> None:
        connection.close()
        raise KeyboardInterrupt

    with pytest.raises(
        UnavailableError, match="interrupted, and Postgres failed: it is unknown whether the job carries out"
    ):
        ask(connection, job, interrupt)


@pytest.mark.guarantee(126)
def test_a_stop_interrupted_while_the_process_ends_has_shown_the_answer(
    database: str, job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OUTBOX_POSTGRES__DSN", database)

    def interrupt(*_: object, **_kept: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(request_client, "wait_for_end", interrupt)

    def answer() -> None:
        requests.answer(job.connection, job.asked().request_id, "done", "stopped between two batches")

    answering = threading.Thread(target=answer)
    answering.start()
    result = CliRunner().invoke(app, ["stop"])
    answering.join(TIMEOUT_S)
    assert result.exit_code != 0
    assert "the job has stopped between two batches" in result.stderr


def test_a_job_in_a_long_batch_is_waited_for_as_long_as_asked(connection: Connection, job: Job) -> None:
    found = Asking(connection, job, "stop", timeout_s=0.5)
    found.end()
    assert isinstance(found.error, UnavailableError)
    assert "has not answered within 0.5 s" in str(found.error)
    assert requests.pending(job.connection, job.run_id) is None, "a job that answers later must not do it"


def test_only_a_living_owner_is_asked(connection: Connection, job: Job) -> None:
    owner = request_client.living_owner(connection, SETTINGS)
    assert owner is not None
    assert owner.run_id == job.run_id
    job.connection.execute("UPDATE outbox.writer SET heartbeat_at = clock_timestamp() - interval '1 hour'")
    assert request_client.living_owner(connection, SETTINGS) is None


def test_the_end_of_a_run_is_waited_for(connection: Connection, job: Job) -> None:
    with pytest.raises(UnavailableError, match="did not end within"):
        request_client.wait_for_end(connection, job.run_id, timeout_s=0.3)
    ownership.give_back(job.connection, job.run_id)
    request_client.wait_for_end(connection, job.run_id, timeout_s=TIMEOUT_S)

"""`docker compose up` of the shipped file: real containers, each killed in turn, publishers scaled under load; all compared at the end."""

import json
from collections.abc import Iterator

import pytest

from examples.clickstream.topics import CLICKS, LOAD
from examples.clickstream.transform import TOPICS
from tests.support.containers.compose_expectation import is_dealt_with, of_inputs, together
from tests.support.containers.compose_project import LONG_RUNNING, OVERRIDE, SECRETS, Stack, progress
from tests.support.engine.owner import OWNER_LABEL
from tests.support.outbox.deliveries import spread
from tests.support.pipeline import verdict
from tests.support.pipeline.feed import Feeder, rounds
from tests.support.queries import query
from tests.support.reading import end_offsets
from tests.support.watching import Watcher

# The images are built, and a cold build downloads 700 MB.
pytestmark = [pytest.mark.containers, pytest.mark.timeout(2_400)]

ONE_SHOT = ("secrets", "logins", "migrate", "topics", "clickstream")
_SAMPLE_EVENTS = 38_316
_SESSIONS = 100
_SESSIONS_PER_SECOND = 20.0
_LANES_OF_THREE = [1, 1, 2]


@pytest.fixture(scope="module")
def dsn(stack: Stack) -> str:
    """The superuser's: a test looks where no service may."""
    return stack.dsn("postgres", stack.secrets()["postgres"])


# The shipped file


def test_every_service_is_confined(stack: Stack) -> None:
    """None is root, none can become it, none writes to its image; the long-running ones are watched, restarted, and given time to end."""
    services = stack.config()["services"]
    for name, service in services.items():
        assert service["user"].split(":")[0] not in ("", "0", "root"), name
        assert service["cap_drop"] == ["ALL"], name
        assert service["security_opt"] == ["no-new-privileges:true"], name
        assert service.get("read_only", False) or name == "kafka", name
        assert "privileged" not in service, name
        for port in service.get("ports", []):
            assert port["host_ip"] == "127.0.0.1", name
    for name in LONG_RUNNING:
        assert services[name]["restart"] == "unless-stopped"
        assert services[name]["healthcheck"]["test"]
        assert services[name]["stop_grace_period"]
        assert stack.execute(name, "id", "-u").strip() != "0"
        assert stack.container(name).described["Config"]["User"] not in ("", "0", "root")
    assert "ports" not in services["publisher"]
    assert "container_name" not in services["publisher"]


def test_the_next_run_can_tell_whose_everything_is(stack: Stack) -> None:
    """Where this run is killed: the override of the tests names every service, network and volume of the shipped file."""
    config = stack.config(OVERRIDE)
    things = [
        (kind, name, thing)
        for kind in ("services", "networks", "volumes")
        for name, thing in config[kind].items()
    ]
    assert [(kind, name) for kind, name, thing in things if OWNER_LABEL not in thing.get("labels", {})] == []


def test_own_servers_take_the_place_of_those_in_containers(stack: Stack) -> None:
    """With deploy/own-servers.yml nothing is left of Postgres, Kafka and the made secrets; each service reads the file it is given."""
    services = stack.config("deploy/own-servers.yml")["services"]
    watching = {name for name, service in services.items() if service.get("profiles") == ["watch"]}
    assert watching == {"grafana", "prometheus"}
    services = {name: service for name, service in services.items() if name not in watching}
    assert sorted(services) == ["auditor", "migrate", "publisher", "retention", "spark-job"]
    for service in services.values():
        assert service["environment"]["OUTBOX_POSTGRES__DSN_FILE"] == "/run/secrets/dsn"
        assert [secret["target"] for secret in service["secrets"]] == ["dsn"]
        assert [
            volume["source"] for volume in service.get("volumes", []) if volume["source"] != "cache"
        ] == []
        assert [name for name in service.get("depends_on", {}) if name not in services] == []


def test_no_secret_is_where_it_can_be_read(stack: Stack) -> None:
    """Neither the configuration nor what the engine shows of a container nor a log has a password, and each service has its own only."""
    passwords = stack.secrets()
    assert sorted(passwords) == ["auditor", "outbox_owner", "postgres", "publisher", "retention", "spark_job"]
    assert len({*passwords.values()}) == len(passwords)
    stack.compose("run", "--rm", "-T", "secrets")
    assert stack.secrets() == passwords, "those of the first start are kept"
    shown = json.dumps(stack.config(OVERRIDE)) + stack.compose("logs", "--no-color")
    shown += json.dumps([container.described for container in stack.containers(*LONG_RUNNING, *ONE_SHOT)])
    assert [login for login, password in passwords.items() if password in shown] == []
    for service, own in (("spark-job", "spark_job.dsn"), ("publisher", "publisher.dsn")):
        # `test -r` asks the kernel, as this user.
        readable = "cd /run/outbox-secrets; for each in *; do test -r $each && echo $each; done; true"
        assert stack.execute(service, "sh", "-c", readable).split() == [own]


def test_the_images_have_what_they_need_and_no_more(stack: Stack) -> None:
    """The publisher's has neither Java nor Spark; the job's has its jars and the sample and asks no network for them."""
    lean = "command -v java; python -c 'import pyspark' 2>&1 | tail -n 1"
    assert (
        stack.run_image("publisher", "sh", "-c", lean) == "ModuleNotFoundError: No module named 'pyspark'\n"
    )
    for image in ("publisher", "spark-job"):
        assert stack.run_image(image, image, "--version") == f"{image} unknown\n"
    jars = stack.run_image("spark-job", "python", "-m", "spark_job.spark.jars").split()
    assert len(jars) > 2
    assert all(jar.startswith("/opt/cache/") for jar in jars)
    count = "from examples.clickstream.dataset import read_clicks; print(len(read_clicks()))"
    assert stack.run_image("spark-job", "python", "-c", count) == "31106\n"


# The pipeline


@pytest.fixture(scope="module")
def watcher(stack: Stack) -> Iterator[Watcher]:
    """A read_committed consumer of every output topic, from before the first kill to the end."""
    with Watcher(stack.bootstrap, *TOPICS) as watching:
        yield watching


def test_exactly_once_whatever_container_is_killed(stack: Stack, dsn: str, watcher: Watcher) -> None:
    """Postgres, Kafka, the job and a publisher are killed in turn under load; three publishers share the lanes, and one of them dies."""
    feed = rounds(1, _SESSIONS, _SESSIONS_PER_SECOND)
    with Feeder(stack.bootstrap, LOAD, feed) as feeder:
        with stack.timed("healthy, until the first deliveries"):
            _wait_for_progress(stack, dsn, (0, 0), "the first batches and deliveries")
        for service in LONG_RUNNING:
            before = progress(dsn)
            stack.kill(stack.container(service))
            assert feeder.is_writing()
            _wait_for_progress(stack, dsn, before, f"batches and deliveries after the death of {service}")
        with stack.timed("scaled to three publishers, until each has its share"):
            stack.compose("scale", "publisher=3")
            stack.wait_until(lambda: spread(dsn) == _LANES_OF_THREE, "three publishers share the lanes")
        before = progress(dsn)
        stack.kill(stack.containers("publisher")[1])
        stack.wait_until(lambda: spread(dsn) == _LANES_OF_THREE, "three publishers share the lanes again")
        _wait_for_progress(stack, dsn, before, "batches and deliveries after the death of one of three")
        assert feeder.is_writing()
        stack.wait_until(
            lambda: stack.container("clickstream").exit_code is not None, "the end of the sample"
        )
        loader = stack.container("clickstream")
        assert (loader.exit_code, loader.restarts) == (0, 0), stack.log("clickstream")
        assert _number_of_records(stack, CLICKS) == _SAMPLE_EVENTS
    with stack.timed("the rest of the input"):
        expected = of_inputs(stack.bootstrap)
        stack.wait_until(lambda: is_dealt_with(dsn, expected), "the delivery of everything")
    with stack.timed("audits"):
        _audit(stack)
    with stack.timed("end in order"):
        stack.compose("stop", "spark-job", "publisher")
    ended = stack.containers("spark-job", "publisher")
    assert [container.exit_code for container in ended] == [0, 0, 0, 0], stack.logs()
    with stack.timed("verdict"):
        ((outbox_uuid,),) = query(dsn, "SELECT outbox_uuid FROM outbox.identity")
        progress_topic = f"outbox-progress-{outbox_uuid}"
        verdict.assert_no_open_transaction(stack.bootstrap, [*TOPICS, progress_topic])
        ends = end_offsets(stack.bootstrap, TOPICS, committed=True)
        stack.wait_until(lambda: watcher.has_read_to(ends), "reading the output topics to their ends")
        whole = together(expected)
        verdict.assert_delivered(whole, watcher.seen)
        verdict.assert_outbox(dsn, whole)
        verdict.assert_ledger_agrees(dsn)
        verdict.assert_deliveries_chain(dsn)
        verdict.assert_nothing_held(dsn)
        undelivered = query(
            dsn, "SELECT outbox_id FROM outbox.event WHERE delivery_state <> 'delivered' LIMIT 3"
        )
        assert undelivered == []
    print(
        f"{whole.records} records, {whole.sessions} sessions, {len(whole.outputs)} outputs, {len(whole.letters)} letters"
    )


@pytest.mark.parametrize(
    ("service", "events"),
    [
        ("publisher", {"publisher_started", "lane_running", "stopping"}),
        ("spark-job", {"job_started", "batch_committed"}),
    ],
)
def test_the_services_log_json(stack: Stack, service: str, events: set[str]) -> None:
    """What they say themselves; their libraries and the JVM have a few lines of their own."""
    lines = [line for line in stack.log(service).splitlines() if line.startswith("{")]
    assert events <= {json.loads(line)["event"] for line in lines}


def test_down_and_up_with_new_secrets_continues_where_it_was(stack: Stack, dsn: str) -> None:
    """The containers are made anew, and so is every password: same generation, no part of the sample again, the new input once."""
    generations = "SELECT generation, created_at FROM outbox.generation ORDER BY generation"
    known, passwords = query(dsn, generations), stack.secrets()
    with stack.timed("down, new secrets, up, until everything is healthy"):
        stack.compose("down")
        forget = ("--entrypoint", "sh", "secrets", "-c", f"rm {SECRETS}/*")
        stack.compose("run", "--rm", "-T", "--no-deps", *forget)
        stack.compose("up", "--detach", "--no-build")
        stack.wait_until_healthy()
    changed = stack.secrets()
    assert passwords.keys() == changed.keys()
    assert not {*passwords.values()} & {*changed.values()}
    dsn = stack.dsn("postgres", changed["postgres"])
    before = progress(dsn)
    with Feeder(stack.bootstrap, LOAD, rounds(2, _SESSIONS, _SESSIONS_PER_SECOND)):
        _wait_for_progress(stack, dsn, before, "batches and deliveries after down and up")
    stack.wait_until(lambda: stack.container("clickstream").exit_code == 0, "the end of the loader")
    assert _number_of_records(stack, CLICKS) == _SAMPLE_EVENTS
    expected = of_inputs(stack.bootstrap)
    stack.wait_until(lambda: is_dealt_with(dsn, expected), "the delivery of everything")
    verdict.assert_outbox(dsn, together(expected))
    assert query(dsn, generations) == known
    _audit(stack)


def _number_of_records(stack: Stack, topic: str) -> int:
    return sum(end_offsets(stack.bootstrap, [topic], committed=True).values())


def _wait_for_progress(stack: Stack, dsn: str, before: tuple[int, int], what: str) -> None:
    """New batches and new deliveries: the pipeline continues, it is not only up."""

    def it_continues() -> bool:
        batch, events = progress(dsn)
        return batch > before[0] + 1 and events > before[1]

    stack.wait_until(it_continues, what)


def _audit(stack: Stack) -> None:
    """From inside a container, as the publisher from SQL alone; as the auditor, who can only read, from the topics too."""
    commands = (
        ("exec", "-T", "publisher", "publisher", "audit", "--json"),
        ("run", "--rm", "-T", "auditor", "audit", "--kafka", "--json"),
    )
    for command in commands:
        said = json.loads(stack.compose(*command, check=False))
        assert said["clean"], [check for check in said["checks"] if check["result"] != "ok"]
        assert said["counted"]["output_events"] > 0
    by_hand = "SELECT count(*) FROM outbox.event WHERE delivery_state <> 'delivered'"
    shown = stack.execute("postgres", "psql", "-U", "auditor", "-d", "outbox", "-Atc", by_hand)
    assert shown == "0\n"

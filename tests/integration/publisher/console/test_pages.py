"""The console's pages, over a real outbox that a real publisher has delivered."""

import re
from collections.abc import Callable, Iterator
from urllib.parse import quote, urlencode

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from publisher.console.pages import PAGES
from service.settings import Settings
from tests.support.console import Console, console_of
from tests.support.outbox.batches import TOPIC_ID, Outbox, Session, read_offsets, simple
from tests.support.outbox.deliveries import deliver
from tests.support.outbox.replays import replayed
from tests.support.queries import query
from tests.support.waiting import wait_until

SECRET = "4111 1111 1111 1111"
ODD = "a/b <c>&'d\"?#é"


def add_letter(dsn: str, key: str | None, first: int, reason: str, detail: str, state: str = "open") -> int:
    ((number,),) = query(
        dsn,
        "INSERT INTO outbox.dead_letter (topic_id, topic, partition, first_offset, last_offset, closing_offset, reason, generation,"
        " batch_id, session_key, detail, event_count, event_offsets, event_times_ms, event_types, event_values, state)"
        " VALUES (%s, 'session-events', 0, %s, %s, %s, %s, 1, 1, %s, %s, 2, %s, '{1,2}', %s, %s, %s) RETURNING dead_letter_id",
        TOPIC_ID,
        first,
        first + 1,
        first + 1,
        reason,
        key,
        detail,
        [first, first + 1],
        [SECRET, "entry_event"],
        [SECRET.encode(), b"{}"],
        state,
    )
    return int(number)


@pytest.fixture
def told(outbox: Outbox, settings: Settings) -> Outbox:
    """Three delivered batches, a fourth that waits, a session with a hard name, letters, a parked row and a replay."""
    outbox.batch(simple(1, keys=8))
    outbox.batch({ODD: [Session([SECRET.encode(), b"2"], 200_010)]})
    outbox.batch(simple(3, keys=60))
    deliver(settings)
    replayed(settings, "start", "--key", "k0001", "--yes")
    outbox.batch(simple(4, keys=5))
    read_offsets(outbox.dsn)
    query(
        outbox.dsn,
        "UPDATE outbox.session_output o SET session_ended_ms = ARRAY[(extract(epoch FROM b.created_at) * 1000 - 500)::bigint]"
        " FROM outbox.batch b WHERE b.batch_id = o.batch_id",
    )
    add_letter(outbox.dsn, "k0001", 150_000, "no_start", "'entry_event' without an open session of its key")
    add_letter(outbox.dsn, None, 150_010, "malformed", f"not JSON: '{SECRET}'")
    add_letter(outbox.dsn, "failed", 150_020, "transform_failed", f"Traceback\nValueError: {SECRET}\n")
    query(
        outbox.dsn,
        "INSERT INTO outbox.parked (session_key, batch_id, epoch, lane, lease_token, reason, detail)"
        " SELECT 'k0002', 4, 1, 0, 1, 'too_large', 'record of 9 bytes'",
    )
    return outbox


@pytest.fixture
def console(told: Outbox, settings: Settings) -> Iterator[Console]:
    with console_of(settings) as found:
        yield found


def addresses(html: str) -> set[str]:
    """The console's own pages that a page links to."""
    found = re.findall(r'href="(/[^"#]*)', html)
    return {each.replace("&amp;", "&").replace("&#39;", "'").replace("&#34;", '"') for each in found}


def test_every_page_and_every_page_that_it_leads_to_is_there(console: Console) -> None:
    seen: dict[str, int] = {}
    waiting = [page.path for page in PAGES if page.path not in ("/batch", "/letter", "/session")]
    while waiting:
        path = waiting.pop()
        if path in seen or path.startswith("/static"):
            continue
        answer = console.get(path)
        seen[path] = answer.status
        assert answer.status == 200, (path, answer.text)
        assert SECRET not in answer.text, path
        if len(seen) < 120:
            waiting += sorted(addresses(answer.text) - seen.keys())
    kinds = {path.partition("?")[0] for path in seen}
    assert kinds == {page.path for page in PAGES}


def test_operations_are_shown_newest_first_page_by_page(console: Console, told: Outbox) -> None:
    add = (
        "INSERT INTO outbox.operation (os_user, host, command, arguments, result)"
        " SELECT 'ann', 'host', 'publisher lanes set', %s, '{}' FROM generate_series(1, %s)"
    )
    query(told.dsn, add, '{"lanes": 16}', 51)
    query(told.dsn, add, '{"topic": "<b>"}', 1)
    page = console.shown("/operations")
    assert page.index("topic: &lt;b&gt;") < page.index("lanes: 16")
    assert "publisher replay start" not in page
    older = re.search(r'href="(/operations\?before=\d+)"', page)
    assert older is not None
    page = console.shown(older[1])
    assert "publisher replay start" in page
    assert page.count("lanes: 16") == 2


def test_the_flow_shows_rates_lag_latency_and_what_needs_a_person(console: Console) -> None:
    page = console.shown("/")
    committed = re.search(r'data-rate="outputs committed">([\d.,]+)<', page)
    assert committed is not None
    for said in (
        "rows not delivered",
        "no publisher runs",
        "no spark-job runs",
        "1 row is parked: too_large",
    ):
        assert said in page, said
    assert "nobody delivers them" in page
    assert "open dead letters: 1 malformed, 1 no_start, 1 transform_failed" in page
    latency = page[page.index('id="latency"') :]
    assert "half of the sessions within" in latency
    assert "Of 69 sessions" in latency


def test_a_session_is_found_by_key_outbox_id_and_position(console: Console, told: Outbox) -> None:
    for asked in (ODD, f"{TOPIC_ID}/0/200010/1", f"{TOPIC_ID}/0/200010", "session-events/0/200009"):
        answer = console.get(f"/search?{urlencode({'q': asked})}")
        assert answer.status == 303, (asked, answer.text)
        assert answer.headers["location"] == f"/session?{urlencode({'key': ODD})}"
    story = console.shown(f"/session?key={quote(ODD)}")
    assert "a/b &lt;c&gt;&amp;&#39;d&#34;?#é" in story
    assert f"{TOPIC_ID}/0/200010/1" in story
    assert SECRET not in story
    assert "19 bytes, hidden" in story
    assert "delivered" in story


def test_a_record_of_an_output_topic_leads_to_its_session(console: Console, told: Outbox) -> None:
    story = console.shown("/session?key=k0003&kafka=1")
    place = re.search(rf"({told.topic}/\d+/\d+)", story)
    assert place is not None, story
    answer = console.get(f"/search?q={place[1]}")
    assert answer.headers.get("location") == "/session?key=k0003", answer.text


def test_the_story_has_replays_letters_and_parked_rows(console: Console, told: Outbox) -> None:
    story = console.shown("/session?key=k0001&kafka=1")
    assert "outputs of batch" in story
    assert "without an open session" in story
    assert re.search(r"Kafka: read [\d,]+ records", story)
    assert "too_large, parked" in console.shown("/session?key=k0002")
    letters = [path for path in addresses(story) if path.startswith("/letter?")]
    assert len(letters) == 1
    assert "19 bytes, hidden" in console.shown(letters[0])


def test_what_is_not_there_is_said(console: Console) -> None:
    assert console.get("/session?key=nobody").status == 404
    assert console.get("/batch?id=999").status == 404
    assert console.get("/letter?id=999").status == 404
    assert "nothing was found" in console.shown("/search?q=nobody")
    assert "nothing was found" in console.shown(f"/search?q={TOPIC_ID}/0/7/0")
    for wrong in ("/batches?before=x", "/deliveries?before=now", "/letters?reason=malformed&at=x"):
        assert console.get(wrong).status == 400, wrong


def test_values_are_shown_where_the_settings_say_so(told: Outbox, settings: Settings) -> None:
    with console_of(settings, show_values=True) as open_one:
        assert SECRET in open_one.shown(f"/session?key={quote(ODD)}")
        assert SECRET in open_one.shown("/letters?reason=transform_failed")


def test_lists_go_on_page_by_page_until_their_end(console: Console, told: Outbox) -> None:
    path: str | None = "/batch?id=3"
    keys: list[str] = []
    for _ in range(5):
        if path is None:
            break
        page = console.shown(path)
        keys += re.findall(r'/session\?key=(k\d+)"', page)
        older = re.search(r'rel="next" href="([^"]+)"', page)
        path = None if older is None else older[1].replace("&amp;", "&")
    assert sorted(keys) == [f"k{n:04d}" for n in range(60)]


def test_deliveries_go_on_page_by_page_until_their_end(
    outbox: Outbox, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(1, 8):
        outbox.batch(simple(number, keys=4))
        deliver(settings)
    ((count,),) = query(outbox.dsn, "SELECT count(*) FROM outbox.delivery")
    monkeypatch.setattr("publisher.console.pages.ROWS", 3)
    with console_of(settings) as console:
        for path in ("/deliveries", "/batches"):
            rows, page = 0, console.shown(path)
            while True:
                rows += page.count("<tr>") - 1
                older = re.search(r'rel="next" href="([^"]+)"', page)
                if older is None:
                    break
                page = console.shown(older[1].replace("&amp;", "&"))
            assert rows == (count if path == "/deliveries" else 7), path


def test_a_live_page_follows_the_outbox(console: Console, told: Outbox, settings: Settings) -> None:
    kind, before = console.first_event("/lanes")
    assert kind == "page"
    assert "<html" not in before
    assert "nobody delivers" in before
    query(told.dsn, "DELETE FROM outbox.parked")
    deliver(settings)
    wait_until(
        lambda: "nobody delivers" not in console.first_event("/lanes")[1], "the lanes without a backlog"
    )


@pytest.mark.guarantee(134)
def test_the_role_of_an_auditor_is_enough_and_nothing_can_be_written(
    told: Outbox, settings: Settings, new_database: Callable[[], str]
) -> None:
    login = f"console_{TOPIC_ID[:4].lower()}_{abs(hash(told.dsn)) % 10**9}"
    query(told.dsn, f'CREATE ROLE "{login}" LOGIN')  # a name of our own
    try:
        query(told.dsn, f'GRANT outbox_auditor TO "{login}"')
        with console_of(settings, dsn=make_conninfo(told.dsn, user=login)) as console:
            for page in PAGES:
                if page.path not in ("/batch", "/letter", "/session"):
                    assert console.get(page.path).status == 200, page.path
            assert "may not read" not in console.shown("/")
    finally:
        query(told.dsn, f'DROP ROLE "{login}"')


def test_what_the_login_may_not_read_is_said_and_the_rest_is_shown(told: Outbox, settings: Settings) -> None:
    login = f"console_p_{abs(hash(told.dsn)) % 10**9}"
    query(told.dsn, f'CREATE ROLE "{login}" LOGIN')
    try:
        query(told.dsn, f'GRANT outbox_publisher TO "{login}"')
        with console_of(settings, dsn=make_conninfo(told.dsn, user=login)) as console:
            flow = console.shown("/")
            assert "login may not read" in flow
            assert "rows not delivered" in flow
            refused = console.get("/letters")
            assert refused.status == 403
            assert "outbox_auditor" in refused.text
            assert console.get("/lanes").status == 200
            assert "k0001" in console.shown("/batch?id=1")
    finally:
        query(told.dsn, f'DROP ROLE "{login}"')


@pytest.mark.guarantee(135)
def test_a_slow_page_is_ended_and_the_others_are_not(told: Outbox, settings: Settings) -> None:
    with (
        console_of(settings, statement_timeout_ms=300) as console,
        psycopg.connect(told.dsn) as blocker,
    ):
        blocker.execute("LOCK TABLE outbox.dead_letter IN ACCESS EXCLUSIVE MODE")
        slow = console.get("/letters")
        assert slow.status == 503
        assert "statement_timeout_ms" in slow.text
        assert console.get("/batches").status == 200
        blocker.rollback()
        assert console.get("/letters").status == 200


@pytest.mark.guarantee(134)
def test_its_connections_refuse_to_write(told: Outbox, settings: Settings) -> None:
    from publisher.console.reader import Reader

    reader = Reader(settings)
    with (
        pytest.raises(psycopg.errors.ReadOnlySqlTransaction),
        reader.connection() as connection,
    ):
        connection.execute("DELETE FROM outbox.dead_letter")
    reader.close()


def test_runs_show_savepoints_and_the_settings_in_force_and_a_batch_what_was_open_after_it(
    told: Outbox, console: Console
) -> None:
    query(told.dsn, "UPDATE outbox.generation SET assembly = '{\"timeout_s\": 1800}'")
    for name, deleted_at in (("before-v2", None), ("forgotten", "2026-01-01")):
        query(
            told.dsn,
            "INSERT INTO outbox.savepoint (name, generation, batch_id, deleted_at, end_offsets, open_state, lineage,"
            " assembly, topics, revision) VALUES (%s, 1, 2,"
            " %s::timestamptz, '{}', '{}', '[]', '{}', '{}', 0)",
            name,
            deleted_at,
        )
    runs = console.shown("/runs")
    assert "before-v2" in runs
    assert "forgotten" not in runs
    assert re.search(r"timeout_s</th><td>1800", runs)
    query(
        told.dsn,
        'UPDATE outbox.batch SET open_state = \'{"T": {"0": {"sessions": 3, "events": 9, "bytes": 2048},'
        ' "1": {"sessions": 4, "events": 9, "bytes": 1024}}}\' WHERE batch_id = 3',
    )
    assert re.search(r"open after it</dt><dd>7 sessions, 3\.\d kB", console.shown("/batch?id=3"))


def test_the_last_restore_says_what_it_went_back_to_and_what_it_has_done(
    told: Outbox, console: Console
) -> None:
    assert "Nobody has restored anything" in console.shown("/runs")
    # The first one had the name before.
    for batch_id, deleted_at in ((1, "2026-01-01"), (2, None)):
        query(
            told.dsn,
            "INSERT INTO outbox.savepoint (name, generation, batch_id, deleted_at, end_offsets, open_state, lineage,"
            " assembly, topics, revision) VALUES ('monday', 1, %s, %s::timestamptz, '{}', '{}', '[]', '{}', '{}', 0)",
            batch_id,
            deleted_at,
        )
    query(
        told.dsn,
        "INSERT INTO outbox.generation (generation, start_offsets, topics, reason, policy, revision, assembly, run_id, from_generation,"
        " from_batch, savepoint, explanation) SELECT 2, start_offsets, topics, 'savepoint', 'reissue', 1, assembly, run_id, 1, 4, 'monday',"
        " 'restored from savepoint ''monday'' (reissue)' FROM outbox.generation WHERE generation = 1",
    )
    page = console.shown("/runs")
    assert "restored from savepoint &#39;monday&#39; (reissue)" in page
    assert re.search(r"savepoint monday: generation 1, batch <[^>]+>2<", page)
    assert "sent again with revision 1: 65 sessions" in page
    assert "nothing yet: no batch was committed since" in page
    query(told.dsn, "UPDATE outbox.batch SET generation = 2, run_id = gen_random_uuid() WHERE batch_id = 4")
    page = console.shown("/runs")
    assert "sent again with revision 1: 60 sessions" in page
    assert re.search(r"5 sessions, \d+ outputs, 0 dead letters, from batch", page)


def test_the_page_of_the_alerts_leads_from_what_holds_to_what_to_do(console: Console) -> None:
    assert 'href="/alerts#outboxrowsparked">OutboxRowsParked: what to do' in console.shown("/")
    page = console.shown("/alerts")
    assert "no publisher runs" in page
    section = page[page.index('<section id="outboxrowsparked"') :]
    assert "holds now" in section[: section.index("</h3>")]
    assert "publisher parked list" in section[: section.index("</section>")]
    clean = page[page.index('<section id="outboxheldback"') :]
    assert "holds now" not in clean[: clean.index("</h3>")]


def test_the_page_of_the_alerts_is_there_without_postgres(settings: Settings) -> None:
    with console_of(settings, dsn="postgresql://127.0.0.1:1/nowhere") as console:
        page = console.shown("/alerts")
        assert "OutboxPostgresUnreachable" in page
        assert "holds now" in page
        assert "does not hold" not in page
        refused = console.get("/")
        assert refused.status == 503
        assert 'href="/alerts#outboxpostgresunreachable"' in refused.text

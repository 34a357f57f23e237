"""Settings: one file, the environment wins, and every mistake is named with the way out."""

import os
import re
from datetime import UTC, datetime
from pathlib import Path

import pytest
from pydantic import BaseModel, SecretStr, ValidationError

from service import private_file
from service.errors import SecretUnreadableError, SettingsError, UnavailableError
from service.settings import (
    ConsoleSettings,
    JobSettings,
    KafkaSettings,
    PostgresSettings,
    RetentionSettings,
    known_keys,
    load_settings,
)
from service.settings.loading import REMOVED


@pytest.fixture(autouse=True)
def _no_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in list(os.environ):
        if name.startswith("OUTBOX_"):
            monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)


def written(text: str) -> Path:
    file = Path("outbox.toml")
    file.write_text(text, "utf-8")
    return file


def test_defaults_need_no_file() -> None:
    assert load_settings().session.start == "start_event"


def test_the_environment_wins_over_the_file_key_by_key(monkeypatch: pytest.MonkeyPatch) -> None:
    file = written('[job]\ntasks = 16\ncache = "/a"\n')
    monkeypatch.setenv("OUTBOX_JOB__TASKS", "32")
    job = load_settings(file).job
    assert (job.tasks, job.cache) == (32, "/a")


def test_lists_and_tables_come_from_the_environment_as_json(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OUTBOX_SOURCE__TOPICS", '["a", "b"]')
    monkeypatch.setenv("OUTBOX_KAFKA__OPTIONS", '{"linger.ms": 5}')
    settings = load_settings()
    assert settings.source.topics == ("a", "b")
    assert settings.kafka.client()["linger.ms"] == 5


TEN = datetime(2026, 11, 24, 10, tzinfo=UTC)


@pytest.mark.parametrize(
    ("in_file", "in_environment", "expected"),
    [
        ('"latest"', "latest", "latest"),
        ('"2026-11-24T10:00:00Z"', "2026-11-24T10:00:00Z", TEN),
        ('"2026-11-24T12:00:00+02:00"', "2026-11-24T12:00:00+02:00", TEN),
        ("2026-11-24T10:00:00Z", "2026-11-24T10:00:00Z", TEN),
        ("{ in = { 0 = 12, 1 = 0 } }", '{"in": {"0": 12, "1": 0}}', {"in": {0: 12, 1: 0}}),
    ],
)
def test_a_start_is_a_word_a_time_or_a_table(
    monkeypatch: pytest.MonkeyPatch, in_file: str, in_environment: str, expected: object
) -> None:
    assert (
        load_settings(written(f"[source]\nstarting_offsets = {in_file}\n")).source.starting_offsets
        == expected
    )
    monkeypatch.setenv("OUTBOX_SOURCE__STARTING_OFFSETS", in_environment)
    assert load_settings(written("")).source.starting_offsets == expected


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ('"earlest"', "'earlest' is not earliest, latest, a time with its zone"),
        ('"2026-11-24T10:00:00"', "a time with its zone"),
        ("2026-11-24T10:00:00", "a time with its zone"),
        ("2026-11-24", "a time with its zone"),
        ('"1969-12-31T23:59:59Z"', "1970 or later"),
        ("1732442400", "a time with its zone"),
        ('"1732442400"', "a time with its zone"),
        ("{ in = 5 }", "'in' = 5 is not a table of offsets by partition"),
        ("{ in = { x = 5 } }", "'in': 'x' = 5 is not a partition's number and its offset"),
        ("{ in = { 0 = -1 } }", "'in': '0' = -1 is not"),
        ('{ in = { 0 = "5" } }', "'in': '0' = '5' is not"),
        ("{ in = { 0 = true } }", "'in': '0' = True is not"),
    ],
)
def test_a_start_that_is_none_of_them_is_refused_once(given: str, says: str) -> None:
    with pytest.raises(SettingsError, match=re.escape(says)) as refused:
        load_settings(written(f"[source]\nstarting_offsets = {given}\n"))
    assert str(refused.value).count("starting_offsets") == 1


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("item", "item"),
        ("*", "*"),
        ("5", "5"),
        ("null", "null"),
        ('["b", "a", "b"]', ("a", "b")),
        (' ["a"]', "a"),
    ],
)
def test_the_types_of_entries_come_from_the_environment_as_text_or_as_a_list(
    text: str, expected: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OUTBOX_SESSION__ENTRY", text)
    assert load_settings().session.entry == expected


def test_start_and_end_may_be_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OUTBOX_SESSION__START", "")
    assert load_settings().session.start == ""
    monkeypatch.setenv("OUTBOX_SESSION__END", "")
    monkeypatch.setenv("OUTBOX_SESSION__ON_TIMEOUT", "emit")
    assert load_settings().session.end == ""


@pytest.mark.guarantee(125)
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("[job]\ntaks = 3\n", "job.taks: unknown key, did you mean job.tasks?"),
        ("[jop]\ntasks = 3\n", "jop: unknown key, did you mean job?"),
        ("[publisher]\nlanes = 0\n", "publisher.lanes"),
        ('[session]\nkey = "session_key"\n', "`key`, `$.field` or `header:NAME`"),
        ('[session]\nstart = "x"\nend = "x"\n', "start, entry and end must differ"),
        ('[session]\nstart = "x"\nentry = ["y", "x"]\n', "start, entry and end must differ"),
        ("[session]\nentry = []\n", "is not an event type, a list of event types or `*`"),
        ('[session]\nentry = ""\n', "is not an event type, a list of event types or `*`"),
        ('[session]\nentry = ["a", "*"]\n', "is not an event type, a list of event types or `*`"),
        ('[session]\nend = ""\n', "end = '' needs on_timeout = 'emit'"),
        ('[session]\non_timeout = "drop"\n', "session.on_timeout"),
        ("[publisher]\nlease_s = 1\npoll_ms = 900\n", "poll_ms (900) must be at most half of lease_s"),
        ("[job\n", "is not valid TOML"),
        ("[job]\nheartbeat_s = 30\n", "must be at least three times heartbeat_s"),
        ('[postgres]\ndsn_file = "/absent"\n', "dsn_file '/absent' cannot be read"),
        ('[console]\nconsumer_dsn_file = "/absent"\n', "consumer_dsn_file '/absent' cannot be read"),
        ('[postgres]\ndsn = "postgresql//u:s3cret@h/db"\n', "neither a libpq URI nor key=value pairs"),
        ('_env_file = "s3cret"\n', "_env_file: unknown key"),
        (
            "[publisher]\nlanes = 5\n[Publisher]\nlanes = 4\n",
            "Publisher: unknown key, did you mean publisher?",
        ),
        ("_cli_parse_args = true\n", "_cli_parse_args: unknown key"),
        ("__pydantic_self__ = 1\n", "__pydantic_self__: unknown key"),
        (f"a = {'[' * 5_000}", "is not valid TOML: it nests too deeply"),
        (f"[job]\ntasks = {'9' * 5_000}\n", "is not valid TOML: Exceeds the limit"),
        (
            "[session]\ntimeout_s = 0.0004\n",
            "session.timeout_s: Input should be greater than or equal to 0.001",
        ),
        ('[session]\nkey = "$.a"\ntype = "$.a.b"\n', "$.a is both a value and the parent of $.a.b"),
        (
            '[session]\nkey = "$.a"\ntime = "$.a"\ntime_format = "epoch_ms"\n',
            "$.a cannot be the time in milliseconds and a text",
        ),
    ],
)
def test_a_wrong_setting_is_named_with_the_way_out(text: str, expected: str) -> None:
    with pytest.raises(SettingsError) as caught:
        load_settings(written(text))
    assert expected in str(caught.value)
    assert "s3cret" not in str(caught.value)


def test_a_settings_file_that_cannot_be_read_is_named() -> None:
    with pytest.raises(SettingsError, match="/proc/self/mem cannot be read"):
        load_settings("/proc/self/mem")


@pytest.mark.guarantee(125)
@pytest.mark.parametrize(
    ("variable", "value", "expected"),
    [
        ("OUTBOX_SOURCE__TOPICS", "s3cret", "OUTBOX_SOURCE__TOPICS is not JSON"),
        ("OUTBOX_SOURCE__TOPICS", "[" * 100_000, "OUTBOX_SOURCE__TOPICS is not JSON"),
        ("OUTBOX_KAFKA__OPTIONS", "{'sasl.password': 's3cret'}", "OUTBOX_KAFKA__OPTIONS is not JSON"),
        ("OUTBOX_JOB", "s3cret", "OUTBOX_JOB is not JSON"),
    ],
)
def test_a_list_or_a_table_in_the_environment_that_is_not_json_is_named(
    variable: str, value: str, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(variable, value)
    with pytest.raises(SettingsError) as caught:
        load_settings()
    assert expected in str(caught.value)
    assert "s3cret" not in str(caught.value)


@pytest.mark.parametrize(
    "text", ["a = [1]\n", "[a]\nb = 1\n", f"a = {'[' * 5_000}", f"a = {'9' * 5_000}\n", "a = 1979-05-27\n"]
)
def test_secret_options_that_are_none_are_refused(text: str) -> None:
    Path("secret.toml").write_text(text, "utf-8")
    kafka = load_settings(written('[kafka]\nsecret_options_file = "secret.toml"\n')).kafka
    for options in (kafka.client, kafka.java):
        with pytest.raises(SettingsError, match=r"secret_options_file = 'secret.toml' cannot be read"):
            options()


def test_a_path_that_cannot_be_one_is_refused() -> None:
    kafka = load_settings(written('[kafka]\nsecret_options_file = "a\\u0000b"\n')).kafka
    with pytest.raises(SettingsError, match="cannot be read: embedded null byte"):
        kafka.java()


@pytest.mark.parametrize("option", ['a = "none\\u0000"', '"a\\u0000" = "none"'])
@pytest.mark.parametrize("table", ["kafka.options", "kafka.java_options", "schema_registry.options"])
def test_an_option_that_a_client_in_c_would_read_otherwise_is_refused(option: str, table: str) -> None:
    with pytest.raises(SettingsError, match="has a NUL"):
        load_settings(written(f"[{table}]\n{option}\n"))
    Path("secret.toml").write_text(option, "utf-8")
    with pytest.raises(SecretUnreadableError, match=r"neither text \(without NUL\) nor a number"):
        KafkaSettings(secret_options_file=Path("secret.toml")).client()


@pytest.mark.guarantee(125)
def test_an_unknown_environment_variable_is_refused_with_the_nearest_known(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OUTBOX_JOB__TAKS", "3")
    with pytest.raises(SettingsError, match="did you mean OUTBOX_JOB__TASKS"):
        load_settings()


@pytest.mark.guarantee(125)
@pytest.mark.parametrize("key", REMOVED)
def test_a_setting_of_before_is_refused_by_a_sentence_that_names_it_and_says_why(
    key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    section, _, name = key.partition(".")
    with pytest.raises(SettingsError) as in_file:
        load_settings(written(f"[{section}]\n{name} = 4\n"))
    assert f"{key} was removed: {REMOVED[key]}" in str(in_file.value)
    Path("outbox.toml").unlink()
    variable = f"OUTBOX_{section}__{name}".upper()
    monkeypatch.setenv(variable, "4")
    with pytest.raises(SettingsError) as in_environment:
        load_settings()
    assert f"{variable} was removed: {REMOVED[key]}" in str(in_environment.value)
    assert key not in known_keys()
    assert "Remove it" in REMOVED[key]


@pytest.mark.parametrize("former", ["fixed_delay", "failure_rate"])
def test_a_restart_strategy_of_before_is_refused_by_a_sentence_that_names_the_settings_to_use(
    former: str,
) -> None:
    with pytest.raises(SettingsError, match=f"'{former}' was removed: set strategy = \"exponential\""):
        load_settings(written(f'[restart]\nstrategy = "{former}"\n'))


def test_the_settings_that_went_with_the_checkpoint_the_buckets_and_the_shuffle_are_known_as_removed() -> (
    None
):
    assert set(REMOVED) >= {
        "job.checkpoint",
        "job.buckets",
        "job.shuffle_partitions",
        "session.max_bucket_bytes",
    }


def test_a_named_file_that_is_missing_is_an_error() -> None:
    with pytest.raises(SettingsError, match=r"there is no settings file 'absent.toml'"):
        load_settings("absent.toml")


@pytest.mark.guarantee(108)
def test_secrets_are_never_printed_and_can_come_from_files(monkeypatch: pytest.MonkeyPatch) -> None:
    Path("dsn").write_text("postgresql://me:hunter2@db.example:6543/outbox\n", "utf-8")
    monkeypatch.setenv("OUTBOX_POSTGRES__DSN_FILE", "dsn")
    postgres = load_settings().postgres
    assert postgres.dsn.get_secret_value() == "postgresql://me:hunter2@db.example:6543/outbox"
    assert "hunter2" not in repr(postgres) + postgres.address()
    assert postgres.address() == "db.example:6543/outbox"


@pytest.mark.guarantee(108)
@pytest.mark.parametrize(
    ("dsn", "address"),
    [
        ("postgresql://u:hunter2@a:1,b:2/box?target_session_attrs=read-write", "a:1,b:2/box"),
        ("host=a,b port=6000 dbname=box password=hunter2", "a:6000,b:6000/box"),
        ("postgresql://a,b:6000/box", "a:5432,b:6000/box"),
        ("hostaddr=10.0.0.1,10.0.0.2 dbname=box", "10.0.0.1:5432,10.0.0.2:5432/box"),
        ("dbname=box", "the local socket:5432/box"),
    ],
)
def test_messages_name_every_host_of_a_dsn_and_no_password(dsn: str, address: str) -> None:
    assert PostgresSettings(dsn=SecretStr(dsn)).address() == address


def test_every_key_has_a_description() -> None:
    from service.settings import Settings

    missing = [
        f"{section}.{name}"
        for section, field in Settings.model_fields.items()
        for name, info in field.annotation.model_fields.items()  # type: ignore[union-attr]
        if not info.description
    ]
    assert missing == []
    assert "postgres.dsn" in known_keys()


def test_postgres_must_not_end_a_start_that_waits_for_kafka(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OUTBOX_POSTGRES__IDLE_IN_TRANSACTION_TIMEOUT_MS", "59000")
    with pytest.raises(SettingsError, match=r"= 59000 is less than twice \[kafka\] request_timeout_s = 30"):
        load_settings()
    monkeypatch.setenv("OUTBOX_KAFKA__REQUEST_TIMEOUT_S", "29")
    load_settings()


@pytest.mark.parametrize(
    ("section", "key"),
    [
        (ConsoleSettings, "token"),
        (ConsoleSettings, "dsn"),
        (ConsoleSettings, "consumer_dsn"),
        (RetentionSettings, "dsn"),
        (PostgresSettings, "dsn"),
    ],
)
def test_an_empty_file_of_a_secret_is_no_absent_setting(
    section: type[BaseModel], key: str, tmp_path: Path
) -> None:
    """The console would have no login, and each other its former one or libpq's own."""
    file = tmp_path / "secret"
    file.write_text(" \n", "utf-8")
    given = {key: "postgresql://auditor@host/outbox"} if key in section.model_fields else {}
    with pytest.raises(ValidationError, match=f"{key}_file '.*' is empty"):
        section.model_validate({f"{key}_file": file, **given})


def test_a_variable_that_a_template_leaves_empty_is_an_absent_setting(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("CONSOLE__TOKEN", "CONSOLE__DSN", "RETENTION__DSN"):
        monkeypatch.setenv(f"OUTBOX_{name}", " ")
    settings = load_settings()
    assert (settings.console.token, settings.console.dsn, settings.retention.dsn) == (None, None, None)


def test_a_dsn_file_is_read_for_each_connection(tmp_path: Path) -> None:
    file = tmp_path / "dsn"
    file.write_text("postgresql://me:former@host/outbox\n")
    settings = PostgresSettings(dsn_file=file)
    file.write_text("postgresql://me:present@host/outbox\n")
    assert settings.reread().dsn.get_secret_value() == "postgresql://me:present@host/outbox"
    retention = RetentionSettings(dsn_file=file)
    assert PostgresSettings().logged_in_by(retention.dsn, retention.dsn_file).reread() == settings.reread()
    own = SecretStr("postgresql://auditor@host/outbox")
    assert settings.logged_in_by(own).reread().dsn == own
    for wrong in ("\n", "postgresql://%", None):
        if wrong is None:
            file.unlink()
        else:
            file.write_text(wrong)
        with pytest.raises(SecretUnreadableError, match="dsn_file") as raised:
            settings.reread()
        assert isinstance(raised.value, UnavailableError)


@pytest.mark.parametrize("whose", ["another user's", "everybody's", "a group's"])
def test_a_file_of_others_in_the_working_directory_is_read_only_when_it_is_named(
    monkeypatch: pytest.MonkeyPatch, whose: str
) -> None:
    file = written('[log]\nlevel = "DEBUG"\n')
    if whose == "everybody's":
        file.chmod(0o666)
    elif whose == "a group's":
        file.chmod(0o664)
        monkeypatch.setattr(private_file, "_is_own_group", lambda _: False)
        if os.getuid() == 0:
            os.chown(file, -1, 4_711)
    else:
        monkeypatch.setattr(os, "geteuid", lambda: 4_711)
        if os.getuid() == 0:
            os.chown(file, 4_712, 4_712)
    with pytest.raises(SettingsError, match="--config or OUTBOX_CONFIG"):
        load_settings()
    assert load_settings(file).log.level == "DEBUG"


@pytest.mark.parametrize("name", ["bootstrap.servers", "metadata.broker.list"])
def test_options_of_a_client_name_no_servers(tmp_path: Path, name: str) -> None:
    """They would win over `bootstrap_servers`, which both clients use and messages name."""
    secret = tmp_path / "kafka.toml"
    secret.write_text(f'"{name}" = "elsewhere:9092"')
    for kafka in (KafkaSettings(options={name: "elsewhere:9092"}), KafkaSettings(secret_options_file=secret)):
        with pytest.raises(SettingsError, match=r"set \[kafka\] bootstrap_servers"):
            kafka.client()
    with pytest.raises(SettingsError, match=r"\[kafka.java_options\] has"):
        KafkaSettings(java_options={name: "elsewhere:9092"}).java()


def test_spark_s_options_name_no_master() -> None:
    with pytest.raises(ValidationError, match=r"set \[job\] master"):
        JobSettings(spark_options={"spark.master": "spark://elsewhere:7077"})


def test_names_of_java_options_count_in_any_case_as_for_spark() -> None:
    given = KafkaSettings(
        options={"security.protocol": "SSL"}, java_options={"Security.Protocol": "PLAINTEXT"}
    )
    assert given.java()["security.protocol"] == "PLAINTEXT"
    assert given.java_options == {"security.protocol": "PLAINTEXT"}
    with pytest.raises(SettingsError, match=r"has bootstrap\.servers"):
        KafkaSettings(java_options={"Bootstrap.Servers": "elsewhere:9092"}).java()

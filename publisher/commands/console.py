"""`publisher console`: serves only the read-only console, and delivers nothing."""

import threading
from typing import Annotated

import typer

from publisher.commands.common import database
from publisher.console.server import serving
from service.commands.options import Config
from service.commands.output import console as terminal
from service.kafka.transport import name_unprotected
from service.lifecycle.shutdown import stop_on_signals
from service.observability import logs
from service.settings import load_settings

DEFAULT_PORT = 8181


def console(
    port: Annotated[
        int | None,
        typer.Option(
            "--port",
            min=0,
            max=65_535,
            help=f"TCP port. Default: [console] port, or {DEFAULT_PORT} where that is 0. 0: the system chooses.",
            show_default=False,
        ),
    ] = None,
    config: Config = None,
) -> None:
    """Serve the console, read-only pages about the outbox, without delivering anything, until SIGTERM or SIGINT.

    A login with the role outbox_auditor is enough: [console] dsn, else [postgres] dsn.

    Exit codes: 0 stopped by a signal, 2 wrong settings or a port in use, 3 wrong schema, 6 Postgres did not answer at the start.
    """
    settings = load_settings(config)
    logs.configure(settings.log)
    name_unprotected(settings)
    chosen = settings.console.port or DEFAULT_PORT if port is None else port
    settings = settings.model_copy(update={"console": settings.console.model_copy(update={"port": chosen})})
    postgres = settings.postgres.logged_in_by(settings.console.dsn, settings.console.dsn_file, "console")
    with database(settings.model_copy(update={"postgres": postgres}), "console"):
        pass
    stop = threading.Event()
    with stop_on_signals(stop), serving(settings) as found:
        terminal().print(
            f"http://{settings.console.host}:{found}{settings.console.path_prefix}/", soft_wrap=True
        )
        stop.wait()

"""Compose v2 on an engine: the machine's own, else Debian 13's as a plugin in a folder of ours."""

from tests.support.engine.debian import compose_plugin
from tests.support.engine.engine import Engine, engine_cache


def provide(engine: Engine) -> None:
    """See to it that `engine.run("compose", ...)` works. Raises EngineError where Compose cannot be had."""
    if engine.run("compose", "version", check=False).returncode == 0:
        return
    engine.environment["DOCKER_CONFIG"] = str(compose_plugin(engine_cache()))
    engine.run("compose", "version")

"""A backlog, as fast as it goes: sessions a second warm and from the start, and the job's CPU for each input event."""

import json
import subprocess
import sys
import time
from collections.abc import Mapping

from benchmarks.pipeline.checkout import Checkout
from benchmarks.pipeline.progress import cpu_us, sessions_per_s, warm
from benchmarks.pipeline.services import running
from benchmarks.support.report import Measured, screen
from benchmarks.support.servers import Servers

LABELS = {
    "warm": "sessions/s, warm",
    "whole": "sessions/s, from the start of the processes",
    "events_per_s": "input events/s, warm",
    "cpu_us_total": "CPU of an input event, warm, us",
    "cpu_us_jvm": "of it the JVM",
    "cpu_us_workers": "of it the Python workers",
    "cpu_us_driver": "of it the driver",
}
_EVERY_S = 0.25
_SHOW_EVERY_S = 10
_LONGEST_S = 900


def measure(
    servers: Servers, checkout: Checkout, topic: str, settings: Mapping[str, str], sessions: int
) -> Measured:
    """Deliver all of the topic's sessions. Warm: from the moment a third of them is delivered."""
    with running(servers, checkout, topic, settings) as services:
        samples = [services.sample()]
        shown = samples[0].at_s
        while samples[-1].delivered < sessions:
            time.sleep(_EVERY_S)
            services.check_alive()
            samples.append(services.sample())
            seconds = samples[-1].at_s - samples[0].at_s
            if samples[-1].at_s - shown > _SHOW_EVERY_S:
                shown = samples[-1].at_s
                screen.print(f"  {seconds:.0f} s: {samples[-1].delivered:,} sessions delivered")
            if seconds > _LONGEST_S:
                raise RuntimeError(f"only {samples[-1].delivered} sessions after {_LONGEST_S} s")
    begin, end = warm(samples, sessions)
    return {
        "warm": sessions_per_s(begin, end),
        "whole": sessions_per_s(samples[0], end),
        "events_per_s": (end.events - begin.events) / (end.at_s - begin.at_s),
        **cpu_us(begin, end),
    }


def scan_s(servers: Servers, topic: str) -> float:
    """Seconds of one warm scan of the topic by Spark, which throws the records away: what nothing that reads by Spark can beat."""
    command = [sys.executable, "-m", "benchmarks.scan", servers.bootstrap_servers, topic]
    ran = subprocess.run(command, capture_output=True, text=True, check=True)
    return float(json.loads(ran.stdout.splitlines()[-1])["seconds"])

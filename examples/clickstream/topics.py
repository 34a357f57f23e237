"""The example's topics; as a command, creates those that are missing.

python -m examples.clickstream.topics
"""

from pathlib import Path
from typing import Annotated

import typer

from devstack.topics import TopicSpec, create_topics
from examples.clickstream.transform import TOPICS
from service.settings import load_settings

CLICKS = "shop.clicks"
"""The sample clickstream, from the loader."""
LOAD = "shop.load"
"""Generated sessions. A topic of its own, because their event times are years from the sample's, and within one
partition the one would look like silence to the other."""

INPUT: dict[str, TopicSpec] = {CLICKS: (4, {}), LOAD: (4, {})}
OUTPUT: dict[str, TopicSpec] = {topic: (4, {}) for topic in TOPICS}

CONFIG = Path(__file__).with_name("outbox.toml")
Config = Annotated[Path, typer.Option(help="Settings file; OUTBOX_* environment variables win over it.")]


def create(config: Config = CONFIG) -> None:
    """Create the example's input and output topics where they are missing."""
    settings = load_settings(config)
    create_topics(settings.kafka.bootstrap_servers, INPUT | OUTPUT)
    for name, (partitions, _) in (INPUT | OUTPUT).items():
        print(f"{name}: {partitions} partitions")


if __name__ == "__main__":
    typer.run(create)

"""What the container engine for tests raises."""


class EngineError(Exception):
    """No container engine, image or Compose can be had here, or a docker command failed; the message says the way out."""

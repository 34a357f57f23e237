"""What the tests' Kubernetes raises."""


class ClusterError(Exception):
    """No node can be had here, or one of its commands failed; the message says the way out."""

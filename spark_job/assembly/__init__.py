"""One task of a batch: open sessions, assembling, the transform, encoding."""

"""A server as a process of this machine: its account and port, the guardian that ends it with its owner, errors that name its log."""

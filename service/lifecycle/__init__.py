"""How a process begins, waits, survives failures and ends."""

"""What job and publisher must agree on and neither owns: progress records, the lane of a session key, which topics take outputs."""

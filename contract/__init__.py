"""What job and publisher must agree on and neither owns: progress records, the lane of a session key, the topics that may take outputs, and
how a row stores the values of headers."""

"""What is taken from Debian's archive."""

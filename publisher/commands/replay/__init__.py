"""`publisher replay`: its commands, and the way out into a file."""

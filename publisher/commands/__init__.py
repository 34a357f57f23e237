"""The commands of `publisher`, one module each; publisher/cli.py puts them together."""

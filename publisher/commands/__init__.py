"""The commands of `publisher`, a module each, or a folder: rows/ parks, requeues, drops and erases, replay/ sends once more.

publisher/cli.py puts them together.
"""

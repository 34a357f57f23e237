"""Shared by the command lines of both services: flags, output, and the question before a change."""

"""The console's HTTP side: who may open it, how many connections it has, and how open pages stay up to date.

- access.py, token_throttle.py: who may open the console, and how fast tokens can be tried.
- connections.py: how many browsers may be connected, and how long a connection may stay silent.
- live.py: sends new content to open pages.
"""

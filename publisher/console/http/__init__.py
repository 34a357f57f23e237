"""The console's HTTP side: who may open it, how many connections it has, and how open pages stay up to date.

- login.py, access.py, token_throttle.py: the login page, who may open any other page, and how fast tokens can be tried.
- connections.py: how many browsers may be connected, and how long a connection may stay silent.
- live.py: sends new content to open pages.
"""

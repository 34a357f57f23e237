"""What a browser may do: who may open the console, how many connections it has, and how open pages stay up to date.

- access.py, token_throttle.py: who may open it, and how fast tokens can be tried.
- connections.py: how many browsers may be connected, and for how long without a request.
- live.py: sends open pages their new content.
"""

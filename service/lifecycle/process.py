"""The names of this process for people. In a container, host and user may have no name (OpenShift)."""

import os
import pwd
import socket

from service.printable import printable


def host_name() -> str:
    """Return the host's name, or "unnamed"."""
    return printable(socket.gethostname()) or "unnamed"


def user_name() -> str:
    """Return the name of the process' user, or its number. Ignores the environment (LOGNAME), which could name another user."""
    user = os.geteuid()
    try:
        return printable(pwd.getpwuid(user).pw_name) or str(user)
    except KeyError:
        return str(user)

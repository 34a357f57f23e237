"""How this process names itself to people. A container may give its host no name, and its user none (OpenShift)."""

import os
import pwd
import socket

from service.printable import printable


def host_name() -> str:
    """Return the host's name, "unnamed" where it has none."""
    return printable(socket.gethostname()) or "unnamed"


def user_name() -> str:
    """Return the name of the process' user, its number where it has none. The environment (LOGNAME) could name another."""
    user = os.geteuid()
    try:
        return printable(pwd.getpwuid(user).pw_name) or str(user)
    except KeyError:
        return str(user)

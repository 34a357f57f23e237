"""Which tests of this folder are about the run at hand."""

import os

from tests.server_choice import containers_are_wanted

# On containers: what the servers are. Else: the part of the suite that runs on them.
collect_ignore = ["test_suite.py"] if containers_are_wanted(os.environ) else ["test_servers.py"]

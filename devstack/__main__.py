"""`python -m devstack`."""

from devstack.cli import main

main()

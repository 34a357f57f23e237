"""`python -m publisher`."""

from publisher.cli import main

if __name__ == "__main__":
    main()

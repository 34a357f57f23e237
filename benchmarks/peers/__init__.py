"""Other ways to do the same work, started and measured as this project's own services are."""

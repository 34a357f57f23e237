"""The measurements of docs/performance.md: each run of a command adds rounds to a JSON file, and the page is rendered from those files."""

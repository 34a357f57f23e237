"""The console: read-only pages about the outbox for people, served by a publisher or alone (docs/console.md)."""

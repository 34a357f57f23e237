"""The publisher's own state and that of the lanes: `publisher status`, the metrics and health pages."""

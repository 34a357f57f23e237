"""What the publisher says of itself and of the lanes: `publisher status`, the metrics and health pages."""

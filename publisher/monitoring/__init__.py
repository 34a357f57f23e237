"""How the publisher is, for people and machines."""

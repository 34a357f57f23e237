"""A position: how far the input was read, what is open there, and which assembly description judges which offset."""

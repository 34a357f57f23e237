"""The streaming query: its batches, their pace and size, and the one way in which it ends."""

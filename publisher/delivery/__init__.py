"""The exactly-once protocol, once: acquire, fence, read progress, check history, deliver, record."""

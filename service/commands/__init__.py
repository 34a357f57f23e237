"""What the command lines of both services share: their flags, what they print and how, and the question before a change."""

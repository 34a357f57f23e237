"""`make demo`: the whole path on real servers, with two kills on the way and a verdict computed from the input."""

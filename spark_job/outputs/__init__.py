"""Turn a closed session into its stored row: the user's transform, the encoding of its outputs, the row in COPY's format."""

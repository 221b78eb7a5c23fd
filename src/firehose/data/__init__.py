"""Posts in, corpus out."""

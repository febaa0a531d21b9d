"""Client sessions over HTTP that every replica can serve."""

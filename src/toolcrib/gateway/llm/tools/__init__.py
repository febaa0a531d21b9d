"""The tools of a request: which a model sees from the start, and the search over the others."""

"""A store in PostgreSQL, which many replicas share."""

"""A store in a SQLite file, which several processes may share, or in memory."""

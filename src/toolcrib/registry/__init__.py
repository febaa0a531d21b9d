"""Tools that are Python functions: kept by name and version, and run."""

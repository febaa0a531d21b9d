"""Reading and writing files: JSON, catalogs, SQLite and atomic writes."""

"""The embedding model that ships with the package."""

"""The encoder that comes with the package: texts in, vectors out, nothing else known."""

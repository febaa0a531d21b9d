"""Code mode: a model writes a Python script that searches and calls tools; it runs in a sandbox."""

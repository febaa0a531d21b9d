"""Convert between provider wire formats and Toolcrib's tools, calls and results; one format a file.

No provider SDK is imported.
"""

"""Toolcrib inside agent frameworks: one module per framework, behind an extra of its name."""

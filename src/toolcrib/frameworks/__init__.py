"""Toolcrib inside agent frameworks: one file each, behind an extra of its name."""

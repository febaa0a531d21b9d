"""Embedders for other models, with a cache and a fallback."""

"""Embedders that users bring, and what every embedder needs around it: a cache, a fallback."""

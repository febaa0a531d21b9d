"""Measure search quality on queries with known answers."""

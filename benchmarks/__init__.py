"""Measurements of quality, speed and cost, compared with peers in the same run."""

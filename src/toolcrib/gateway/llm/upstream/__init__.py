"""Connections and requests to the upstreams of models."""

"""Example requests for tools, written by a model and checked by searching for them."""

"""How well searches answer questions whose answers are known."""

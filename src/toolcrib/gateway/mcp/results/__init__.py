"""Large tool results: previews, and reads of parts of them."""

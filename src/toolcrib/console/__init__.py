"""The console: the pages of the gateway in the browser."""

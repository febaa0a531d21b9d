"""Commands that add, import, log in to, restart and inspect the servers of a configuration."""

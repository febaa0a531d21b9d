"""The gateways' configuration: one file read into one frozen `Config`, and what is asked of it."""

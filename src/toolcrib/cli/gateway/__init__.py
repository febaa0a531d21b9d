"""Commands that run, configure or ask a gateway."""

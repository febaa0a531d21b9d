"""A provider-neutral agent loop: call a model and answer its tool calls until the task is done."""

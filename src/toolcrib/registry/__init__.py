"""Python functions as tools: registered by name and version, validated and run."""

"""Safety of tool definitions: scanning for hostile text, and pinning of approved definitions."""

"""OpenAI's Chat Completions API: requests rewritten, replies and streams read."""

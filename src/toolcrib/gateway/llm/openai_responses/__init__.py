"""OpenAI's Responses API: requests rewritten, replies and streams read."""

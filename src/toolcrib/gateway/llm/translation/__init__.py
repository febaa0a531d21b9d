"""Requests of the Messages, Responses and Gemini APIs for upstreams that have only Chat Completions.

What cannot be carried over is refused by name. Settings that only affect speed, price or storage are left out.
"""

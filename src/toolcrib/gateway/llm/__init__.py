"""The model gateway: tool search on any model, by changing one base URL."""

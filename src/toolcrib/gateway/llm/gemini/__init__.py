"""Google's Gemini API with transparent tool search."""

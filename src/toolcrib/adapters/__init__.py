"""One wire format a file: a provider's JSON in, our tools out. No SDK is imported."""

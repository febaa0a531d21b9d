"""Quality and speed over the public API, always beside a peer, in one run."""

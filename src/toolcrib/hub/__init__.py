"""The hub: store, catalog and search engine kept in step, with one view per access profile."""

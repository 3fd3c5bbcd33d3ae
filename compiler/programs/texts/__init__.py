"""Programs over a cache that holds rows of several texts."""

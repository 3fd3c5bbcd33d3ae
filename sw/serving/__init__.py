"""Requests that arrive over time and share passes: arrivals, the run, latency and throughput, what caches hold."""

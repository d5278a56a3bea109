"""HTTP: time limits, trusted hosts, security headers, request bodies, metrics."""

"""HTTP: time limits, security headers, request bodies, metrics."""

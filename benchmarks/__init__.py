"""What regard costs, measured against its peers on this machine: `python -m benchmarks`."""

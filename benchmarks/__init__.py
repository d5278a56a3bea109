"""The speed and memory of regard, compared with other libraries on this machine: `python -m benchmarks`."""

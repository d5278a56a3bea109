"""Claims of the attention literature, tested by small experiments: `python -m benchmarks.claims NAME --seeds 3`."""

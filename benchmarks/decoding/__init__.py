"""The cost of decoding step by step: `python -m benchmarks steps translation generation int8`."""

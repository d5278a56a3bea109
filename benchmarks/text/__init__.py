"""Benchmarks of text classifiers."""

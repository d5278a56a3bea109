"""Experiments: trainings whose scores the documentation shows. `python -m benchmarks.experiments --list`."""

"""Training: `fit(config, run, training)` yields events. Knows tasks by their protocol alone."""

"""Training: `fit(task, run, training)` yields events. Knows tasks by their protocol alone."""

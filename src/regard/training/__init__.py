"""Training: `fit(task, run, training)` yields events. Knows Task, never a concrete one."""

"""Trials of the files of runs: damage to any of them, and kills of their trainings.

python -m benchmarks.robustness.damage     500 damaged run folders: one sentence each, no traceback, no accepted flip
python -m benchmarks.robustness.kills      50 kills (-9) in the trainings of two tasks: the same weights, bit for bit
"""

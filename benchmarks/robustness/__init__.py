"""Trials of the files of runs: damage to any of them.

python -m benchmarks.robustness.damage     500 damaged run folders: one sentence each, no traceback, no accepted flip
"""

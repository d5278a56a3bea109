"""Scores and costs of trained translators: `python -m benchmarks.translation --list`.

python -m benchmarks.translation NAME …       trains; all trainings take hours; an interrupted one is resumed
python -m benchmarks.translation.resume       kills and resumes a training repeatedly
python -m benchmarks.translation.growth       the same training on increasing numbers of pairs
python -m benchmarks.translation.decoding     decoding in batches against one sentence at a time
python -m benchmarks.translation --report     writes tables and plots of all results
"""

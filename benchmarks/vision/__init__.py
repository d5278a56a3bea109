"""Scores and costs of image models: `python -m benchmarks.vision --list`.

python -m benchmarks.vision.NAME --runs FOLDER    trains, evaluates, and writes benchmarks/results/vision/NAME.json
python -m benchmarks.vision --report              writes docs/vision.md from all results
"""

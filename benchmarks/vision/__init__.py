"""What models of images reach, and what it costs: `python -m benchmarks.vision --list`.

python -m benchmarks.vision.NAME --runs FOLDER    trains, judges, and writes benchmarks/results/vision/NAME.json
python -m benchmarks.vision --report              docs/vision.md, of whatever was measured
"""

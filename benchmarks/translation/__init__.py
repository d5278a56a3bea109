"""What a trained translator reaches, and what it costs: `python -m benchmarks.translation --list`.

python -m benchmarks.translation NAME …       trainings, hours in all; each goes on where it was stopped
python -m benchmarks.translation.resume       kills a training again and again
python -m benchmarks.translation.growth       the same training on ever more pairs
python -m benchmarks.translation.decoding     a batch of sentences beside one by one
python -m benchmarks.translation --report     the tables and pictures of whatever was measured
"""

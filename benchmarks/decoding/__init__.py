"""The cost of decoding step by step: `python -m benchmarks.decoding --list`.

python -m benchmarks.decoding steps           a step of MultiHead, its growth with the cache, the cost of a call
python -m benchmarks.decoding translation     a Transformer against CTranslate2 with the same weights
python -m benchmarks.decoding --docs          writes docs/decoding.md from the saved tables
"""

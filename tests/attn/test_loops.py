"""Random masks, positions, heads, biases and normalizers on every backend equal explicit loops."""

from tests.attn.loops import example, mismatches
from tests.for_each import for_each


@for_each("start", range(0, 160, 20), share=0.5)
def test_every_backend_equals_the_loops(start: int) -> None:
    """The first of the attentions that `make fuzz` compares."""
    assert not {seed: found for seed in range(start, start + 20) if (found := list(mismatches(example(seed))))}

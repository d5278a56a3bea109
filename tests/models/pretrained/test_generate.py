"""Searches over loaded checkpoints, held to transformers' `generate`: the same tokens."""

import copy
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.for_each import for_each
from tests.models.pretrained.released import SCALED, V, made, tokens
from torch import Tensor

from regard.decoding.greedy import greedy
from regard.decoding.prompts import prompt_batch
from regard.decoding.search import Beam, Greedy, NormalizedBeam, Search, run_search
from regard.models.pretrained import load_pretrained
from regard.models.pretrained.marian import search_tokens

LENGTHS = torch.tensor([4, 7, 1, 6])
PADDED = (torch.arange(7) < LENGTHS[:, None]).long()
LIMIT = 12


def marian(seed: int, folder: Path) -> tuple[Any, Any]:
    """A translator whose sentences end at many lengths, and ours of its checkpoint."""
    theirs = made("MarianMTModel")
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for key, p in theirs.named_parameters():
            if "norm" not in key and "embed_positions" not in key:
                p.copy_(torch.randn(p.shape, generator=generator) * (0.2 + 0.1 * (seed % 3)))
        theirs.final_logits_bias.copy_(torch.randn(1, V, generator=generator))
        theirs.final_logits_bias[0, 0] = 2.5 + seed % 3
    theirs.save_pretrained(folder)
    return theirs, load_pretrained(folder)


def until_end(row: Tensor, eos: int) -> tuple[int, ...]:
    ids = row.tolist()
    return tuple(ids[: ids.index(eos)] if eos in ids else ids)


@pytest.mark.parametrize("seed", [0, 2, 3, 4])
@pytest.mark.parametrize(("size", "penalty"), [(1, 1.0), (2, 0.0), (4, 1.0), (5, 0.6)])
@torch.no_grad()
def test_marian_finds_the_sentences_of_generate(seed: int, size: int, penalty: float, tmp_path: Path) -> None:
    theirs, loaded = marian(seed, tmp_path)
    source = tokens(4)
    nbest = min(size, 2)
    options = {"length_penalty": penalty} if size > 1 else {}
    generated = theirs.generate(
        input_ids=source,
        attention_mask=PADDED,
        num_beams=size,
        num_return_sequences=nbest,
        do_sample=False,
        max_new_tokens=LIMIT,
        bad_words_ids=[[V - 1]],
        **options,
    )
    want = [until_end(row[1:], 0) for row in generated]
    search: Search = NormalizedBeam(size, nbest, penalty) if size > 1 else Greedy()
    state = loaded.model.init_state(source, LENGTHS)
    limits = torch.full((4,), LIMIT)
    found = run_search(loaded.model, state, search, limits, range(4), **search_tokens(loaded.config)._asdict())
    assert [hypothesis.tokens for hypotheses in found for hypothesis in hypotheses] == want
    for n, hypotheses in enumerate(found):
        row = slice(n, n + 1)
        alone = loaded.model.init_state(source[row, : LENGTHS[n]], LENGTHS[row])
        (one,) = run_search(loaded.model, alone, search, limits[row], [n], **search_tokens(loaded.config)._asdict())
        assert [hypothesis.tokens for hypothesis in one] == [hypothesis.tokens for hypothesis in hypotheses]


@torch.no_grad()
def test_scores_are_log_p_by_length(tmp_path: Path) -> None:
    _, loaded = marian(4, tmp_path)
    by = search_tokens(loaded.config)._asdict()
    state = loaded.model.init_state(tokens(4), LENGTHS)
    found = run_search(loaded.model, state, NormalizedBeam(4, 4, 0.7), torch.full((4,), LIMIT), range(4), **by)
    lengths = set()
    for hypotheses in found:
        assert hypotheses == sorted(hypotheses, key=lambda one: -one.score)
        for one in hypotheses:
            length = len(one.tokens) + one.finished
            lengths.add(length)
            assert one.score == pytest.approx(one.log_prob / length**0.7, rel=1e-5)
    assert len(lengths) > 2
    # regard's own beam keeps the greedy sentence and searches on: it is never worse by log p alone
    best = run_search(loaded.model, state, Beam(4, 1, 0.0), torch.full((4,), LIMIT), range(4), **by)
    other = run_search(loaded.model, state, Greedy(), torch.full((4,), LIMIT), range(4), **by)
    assert all(a[0].log_prob >= b[0].log_prob - 1e-6 for a, b in zip(best, other, strict=True))


PROMPTS = [[3, 5, 1], [6], [1, 3, 3, 9, 4]]


@for_each(
    "name",
    [
        *("GPT2LMHeadModel", "LlamaForCausalLM", "LlamaForCausalLM, tied"),
        *(f"LlamaForCausalLM, {kind}" for kind in SCALED),
        *("MistralForCausalLM", "Qwen2ForCausalLM", "Qwen3ForCausalLM", "Qwen3ForCausalLM, yarn, biases"),
        *("Phi3ForCausalLM", "Phi3ForCausalLM, window", "Phi3ForCausalLM, longrope"),
        *("Gemma3ForCausalLM", "Gemma3ForCausalLM, scaled"),
        *("GPTNeoXForCausalLM", "GPTNeoXForCausalLM, serial", "GPTNeoXForCausalLM, linear"),
    ],
    share=0.5,
)
@torch.no_grad()
def test_ragged_prompts_continue_as_in_generate(name: str, tmp_path: Path) -> None:
    """Theirs are padded on the left and need positions that count real tokens; ours are padded on the right."""
    theirs = made(name)
    theirs.save_pretrained(tmp_path)
    model = load_pretrained(tmp_path).model
    prompts = prompt_batch(PROMPTS)
    limits = torch.full((3,), 8)
    state = model.init_state(prompts.tokens, prompts.lengths)
    found = greedy(model, state, bos=prompts.last, eos=2, limits=limits)
    beams = run_search(model, state, NormalizedBeam(3), limits, range(3), bos=prompts.last, eos=2, forbidden=())
    for prompt, one, (best,) in zip(PROMPTS, found, beams, strict=True):
        by = {"max_new_tokens": 8, "do_sample": False, "eos_token_id": 2, "pad_token_id": 2}
        ids = torch.tensor([prompt])
        # dynamic rotary positions of transformers keep the frequencies of the longest text before
        whole = copy.deepcopy(theirs).generate(ids, attention_mask=torch.ones_like(ids), **by)
        assert one.tokens == until_end(whole[0, len(prompt) :], 2)
        whole = copy.deepcopy(theirs).generate(ids, attention_mask=torch.ones_like(ids), num_beams=3, **by)
        assert best.tokens == until_end(whole[0, len(prompt) :], 2)

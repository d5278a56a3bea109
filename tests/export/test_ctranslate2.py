"""CTranslate2 computes the same from exported models: tokens, and scores within 1e-4."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from regard.decoding.greedy import greedy
from regard.export.ctranslate2_model import write_decoder, write_encoder, write_translator
from regard.models.bert import BERT
from regard.models.gpt2 import GPT2
from regard.models.transformer import Transformer

THREADS: dict[str, Any] = {"compute_type": "float32", "inter_threads": 1, "intra_threads": 1}
WORDS = [f"w{n}" for n in range(29)]


def randomize(model: Any, std: float = 0.6) -> Any:
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(std=std)
    return model.eval()


@pytest.mark.parametrize(
    ("norm", "positions", "activation", "scale"),
    [("pre", "sinusoidal", torch.relu_, None), ("post", "learned", torch.nn.GELU(), 1.0)],
)
def test_translators(norm: str, positions: str, activation: Any, scale: float | None, tmp_path: Path) -> None:
    import ctranslate2

    torch.manual_seed(0)
    sizes: dict[str, Any] = {"width": 8, "layers": 2, "heads": 2, "feed": 12, "tied": "none", "activation": activation}
    model = randomize(Transformer(23, 29, norm=norm, positions=positions, scale=scale, **sizes))
    write_translator(model, tmp_path, WORDS[:23], WORDS, bos="w1", eos="w2", unk="w3")
    peer = ctranslate2.Translator(str(tmp_path), **THREADS)
    source, lengths = torch.randint(4, 23, (3, 7)), torch.tensor([7, 5, 3])
    mine = greedy(model, model.init_state(source, lengths), bos=1, eos=2, limits=torch.full((3,), 11))
    texts = [[WORDS[n] for n in row[:length]] for row, length in zip(source.tolist(), lengths.tolist(), strict=True)]
    results = peer.translate_batch(texts, beam_size=1, max_decoding_length=11)
    theirs = [[int(token[1:]) for token in result.hypotheses[0]] for result in results]
    assert [list(hypothesis.tokens) for hypothesis in mine] == theirs


def test_decoders(tmp_path: Path) -> None:
    import ctranslate2

    torch.manual_seed(0)
    model = randomize(GPT2(29, width=8, layers=2, heads=2, longest=13, eps=1e-3))
    write_decoder(model, tmp_path, WORDS, bos="w1", eos="w2", unk="w3")
    peer = ctranslate2.Generator(str(tmp_path), **THREADS)
    tokens = torch.randint(4, 29, (3, 11))
    with torch.no_grad():
        log_p = model(tokens).log_softmax(-1)
    theirs = np.array(peer.forward_batch(tokens.tolist(), return_log_probs=True))
    np.testing.assert_allclose(theirs, log_p.numpy(), atol=1e-4)


@pytest.mark.parametrize("types", [1, 2])
def test_encoders(types: int, tmp_path: Path) -> None:
    import ctranslate2

    torch.manual_seed(0)
    model = randomize(BERT(29, width=8, layers=2, heads=2, longest=13, types=types))
    write_encoder(model, tmp_path, WORDS, unk="w3")
    peer = ctranslate2.Encoder(str(tmp_path), **THREADS)
    tokens = torch.randint(4, 29, (3, 11))
    with torch.no_grad():
        states = model(tokens)
    theirs = np.array(peer.forward_batch(tokens.tolist()).last_hidden_state)
    np.testing.assert_allclose(theirs, states.numpy(), atol=1e-4)


def test_other_models_are_refused(tmp_path: Path) -> None:
    small: dict[str, Any] = {"width": 4, "layers": 1, "heads": 1}
    model = Transformer(5, 5, scale=3.0, **small)
    with pytest.raises(ValueError, match="cannot express this Transformer: .* multiplied by 3, not by 1"):
        write_translator(model, tmp_path, WORDS[:5], WORDS[:5], bos="w1", eos="w2", unk="w3")
    with pytest.raises(ValueError, match="its norms stand before its sublayers"):
        write_encoder(BERT(5, norm="pre", **small), tmp_path, WORDS[:5], unk="w3")
    assert not any(tmp_path.iterdir())

"""Exported graphs, run without regard: by ONNX Runtime and by torch; batches of ragged texts are padded."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

Run = Callable[..., list[Tensor]]


def onnx_graph(path: Path) -> Run:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])

    def run(**inputs: Tensor) -> list[Tensor]:
        arrays = {name: tensor.numpy() for name, tensor in inputs.items()}
        return [torch.from_numpy(np.asarray(array)) for array in session.run(None, arrays)]

    return run


def torch_graph(path: Path) -> Run:
    program = torch.export.load(path)
    targets = {str(node.target) for node in program.graph.nodes if node.op == "call_function"}
    assert not any("regard" in target for target in targets)
    module = program.module()

    def run(**inputs: Tensor) -> list[Tensor]:
        result = module(**inputs)
        return list(result) if isinstance(result, tuple) else [result]

    return run


# the ending of the files of each format, and the function that loads one
GRAPHS: dict[str, tuple[str, Callable[[Path], Run]]] = {"onnx": (".onnx", onnx_graph), "torch": (".pt2", torch_graph)}


@dataclass(frozen=True)
class GraphFolder:
    """The graphs of an exported folder by name, and its model.json."""

    graphs: dict[str, Run]
    about: dict[str, Any]

    @staticmethod
    def read(folder: Path, to: str) -> "GraphFolder":
        suffix, load = GRAPHS[to]
        about = json.loads((folder / "model.json").read_text(encoding="utf-8"))
        return GraphFolder({name: load(folder / f"{name}{suffix}") for name in about["graphs"]}, about)

    @property
    def special(self) -> dict[str, Any]:
        special: dict[str, Any] = self.about["special_tokens"]
        return special

    def past(self, graph: str, batch: int) -> list[Tensor]:
        """Keys and values of no token."""
        layers, _, heads, _, width = self.about["graphs"][graph]["inputs"]["past_keys"]
        return [torch.zeros(layers, batch, heads, 0, width) for _ in range(2)]

    def encode(self, rows: Sequence[Sequence[int]]) -> Tensor:
        """The output of an encoder for texts."""
        ids, mask = padded(rows, self.special.get("pad", 0))
        (output,) = self.graphs["encoder"](input_ids=ids, attention_mask=mask)
        return output

    def generate(self, prompts: Sequence[Sequence[int]], steps: int) -> tuple[list[list[int]], list[float], Tensor]:
        """The likeliest tokens behind prompts, their log p, and the logits of the prompts, which end together."""
        tokens, mask = padded(prompts, self.special.get("pad", 0), left=True)
        past = self.past("decoder", len(prompts))
        past_mask = torch.ones(len(prompts), 0, dtype=torch.long)
        path, of_prompts = GreedyPath(len(prompts), self.special), None
        for _ in range(steps):
            inputs = {"input_ids": tokens, "attention_mask": mask, "past_mask": past_mask}
            logits, *past = self.graphs["decoder"](**inputs, past_keys=past[0], past_values=past[1])
            of_prompts = logits if of_prompts is None else of_prompts
            past_mask = torch.cat([past_mask, mask], 1)
            tokens = path.extend(logits[:, -1])
            mask = torch.ones_like(tokens)
        assert of_prompts is not None
        return path.tokens, path.log_probs, of_prompts

    def translate(self, rows: Sequence[Sequence[int]], steps: int) -> tuple[list[list[int]], list[float]]:
        """Greedy translations and their log p."""
        source = self._source(rows)
        past, path = self.past("step", len(rows)), GreedyPath(len(rows), self.special)
        tokens = torch.full((len(rows), 1), self.special["bos"])
        for _ in range(steps):
            logits, *past = self.graphs["step"](input_ids=tokens, **source, past_keys=past[0], past_values=past[1])
            tokens = path.extend(logits[:, -1])
        return path.tokens, path.log_probs

    def translation_logits(self, rows: Sequence[Sequence[int]], targets: Sequence[Sequence[int]]) -> Tensor:
        """The logits of all tokens of known translations at once: "b t v"."""
        begun = [[self.special["bos"], *target[:-1]] for target in targets]
        ids, _ = padded(begun, self.special["pad"])
        keys, values = self.past("step", len(rows))
        return self.graphs["step"](input_ids=ids, **self._source(rows), past_keys=keys, past_values=values)[0]

    def _source(self, rows: Sequence[Sequence[int]]) -> dict[str, Tensor]:
        ids, mask = padded(rows, self.special["pad"])
        keys, values = self.graphs["source"](input_ids=ids, attention_mask=mask)
        return {"attention_mask": mask, "source_keys": keys, "source_values": values}


class GreedyPath:
    """The likeliest tokens of a batch so far, and their log p; no text has a forbidden token."""

    def __init__(self, batch: int, special: dict[str, Any]) -> None:
        self.tokens: list[list[int]] = [[] for _ in range(batch)]
        self.log_probs = [0.0] * batch
        self.eos, self.forbidden = special.get("eos"), torch.tensor(special["forbidden"], dtype=torch.long)

    def extend(self, logits: Tensor) -> Tensor:  # "b v" -> "b 1"
        best = logits.index_fill(1, self.forbidden, -torch.inf).argmax(-1)
        log_p = logits.log_softmax(-1).gather(1, best[:, None])[:, 0].tolist()
        for n, token in enumerate(best.tolist()):
            if not self.tokens[n] or self.tokens[n][-1] != self.eos:
                self.tokens[n].append(token)
                self.log_probs[n] += log_p[n]
        return best[:, None]


def padded(rows: Sequence[Sequence[int]], pad: int, left: bool = False) -> tuple[Tensor, Tensor]:
    """Ids and their mask, padded to the longest row."""
    longest = max(map(len, rows))
    ids, mask = torch.full((len(rows), longest), pad), torch.zeros(len(rows), longest, dtype=torch.long)
    for n, row in enumerate(rows):
        places = slice(longest - len(row), longest) if left else slice(len(row))
        ids[n, places], mask[n, places] = torch.tensor(row), 1
    return ids, mask

"""Exported graphs, run without regard: by ONNX Runtime and by torch."""

from collections.abc import Callable
from pathlib import Path

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


def generate(decoder: Run, prompt: list[int], steps: int, size: tuple[int, int, int]) -> list[int]:
    """The likeliest tokens behind a prompt, one per step, with the keys of the steps before."""
    layers, heads, width = size
    past = [torch.zeros(layers, 1, heads, 0, width)] * 2
    tokens, read = torch.tensor([prompt]), 0
    found: list[int] = []
    while len(found) < steps:
        masks = {"attention_mask": torch.ones_like(tokens), "past_mask": torch.ones(1, read, dtype=torch.long)}
        logits, *past = decoder(input_ids=tokens, **masks, past_keys=past[0], past_values=past[1])
        found.append(int(best(logits[0, -1])))
        tokens, read = torch.tensor([found[-1:]]), read + tokens.shape[1]
        if found[-1] == 2:
            break
    return found


def translate(
    source: Run, step: Run, ids: list[int], steps: int, size: tuple[int, int, int]
) -> tuple[list[int], float]:
    """The greedy translation of a sentence and its log p."""
    layers, heads, width = size
    mask = torch.ones(1, len(ids), dtype=torch.long)
    keys, values = source(input_ids=torch.tensor([ids]), attention_mask=mask)
    past = [torch.zeros(layers, 1, heads, 0, width)] * 2
    found, total = [1], 0.0
    while len(found) <= steps:
        logits, *past = step(
            input_ids=torch.tensor([found[-1:]]),
            attention_mask=mask,
            source_keys=keys,
            source_values=values,
            past_keys=past[0],
            past_values=past[1],
        )
        found.append(int(best(logits[0, -1])))
        total += float(logits[0, -1].log_softmax(-1)[found[-1]])
        if found[-1] == 2:
            break
    return found[1:], total


def best(logits: Tensor) -> Tensor:
    """The likeliest token that a text may have: no padding, begin or unknown token."""
    return logits.index_fill(0, torch.tensor([0, 1, 3]), -torch.inf).argmax()

"""Formulas on lists of numbers, for the loops that layers are compared with."""

import math

from torch import nn


def sigma(z: float) -> float:
    return 1 / (1 + math.exp(-z))


def softmax(scores: list[float]) -> list[float]:
    exps = [math.exp(s) for s in scores]
    return [e / sum(exps) for e in exps]


def dense(layer: nn.Linear, vector: list[float]) -> list[float]:
    bias = [0.0] * layer.out_features if layer.bias is None else layer.bias.tolist()
    return [
        sum(w * v for w, v in zip(row, vector, strict=True)) + b
        for row, b in zip(layer.weight.tolist(), bias, strict=True)
    ]

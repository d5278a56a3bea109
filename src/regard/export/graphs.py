"""Graphs: models as plain functions of tensors, with a batch and lengths of any size, for exporters that trace them.

    encoder           input_ids, attention_mask -> states pooled into a vector, logits of classes, or logits per token
    decoder           input_ids, attention_mask, past_mask, past_keys, past_values -> logits, keys, values
    source, step      of a translator: source -> keys and values of the source; step as a decoder that reads them

The shapes: ids and masks "b t", keys and values "l b h t d" of all layers. A first call has pasts of length 0.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.attn.multihead import MultiHead
from regard.export.plain_attention import check_plain, position_table
from regard.inference.exportable import Exportable
from regard.layers.text_pooling import pool
from regard.models.bert import BERT, BERTMaskedLM
from regard.models.gpt2 import GPT2
from regard.models.transfer.classifier import EncoderClassifier, ReleasedClassifier
from regard.models.transfer.text_embedder import TextEmbedder
from regard.models.transformer import Transformer

# positions that are written for sinusoids
LONGEST = 2048
_FORMAT = "a graph"
_IDS = ("batch", "length")
_CACHE = (None, "batch", None, "past", None)
_SOURCE = (None, "batch", None, "source", None)


@dataclass(frozen=True, eq=False)
class Graph:
    """A module with one example per input, the names of axes that may have any size, and the names of its outputs."""

    name: str
    module: nn.Module
    inputs: Mapping[str, Tensor]
    axes: Mapping[str, tuple[str | None, ...]]
    outputs: tuple[str, ...]
    longest: int  # the most tokens


class Positions(nn.Module):
    """The vectors that are added to embeddings, by a table."""

    def __init__(self, place: nn.Module | None) -> None:
        super().__init__()
        self.register_buffer("table", position_table(place, LONGEST))
        self.table: Tensor

    def forward(self, positions: Tensor) -> Tensor:  # "*b t" -> "*b t d"
        return F.embedding(positions, self.table)


def _split(x: Tensor, linear: nn.Module, heads: int) -> Tensor:  # "b t d" -> "b h t e"
    return linear(x).unflatten(-1, (heads, -1)).transpose(1, 2)


def _keys_and_values(attention: MultiHead, x: Tensor) -> tuple[Tensor, Tensor]:
    return _split(x, attention.key, attention.heads), _split(x, attention.value, attention.heads)


def _attend(attention: MultiHead, x: Tensor, keys: Tensor, values: Tensor, hidden: Tensor | None) -> Tensor:
    """softmax(q k / √d + hidden) v; `hidden` is 0 where a query may look, and very small elsewhere."""
    queries = _split(x, attention.query, attention.heads)
    attended = F.scaled_dot_product_attention(queries, keys, values, attn_mask=hidden)
    return attention.out(attended.transpose(1, 2).flatten(-2))


def _hidden(visible: Tensor) -> Tensor:  # "b 1 q k", finite, so that a row of padding has no NaN
    return torch.where(visible, 0.0, torch.finfo(torch.float32).min / 2)


def _feed(layer: Any, x: Tensor) -> Tensor:
    entered = layer.around_feed.enter(x)
    return layer.around_feed.leave(x, layer.feed.outer(layer.feed.activation(layer.feed.inner(entered))))


def _encode(layers: Any, x: Tensor, attention_mask: Tensor) -> Tensor:
    hidden = _hidden(attention_mask[:, None, None, :].bool())
    for layer in layers:
        entered = layer.around_attention.enter(x)
        keys, values = _keys_and_values(layer.attention, entered)
        x = layer.around_attention.leave(x, _attend(layer.attention, entered, keys, values, hidden))
        x = _feed(layer, x)
    return x


class EncoderGraph(nn.Module):
    """head(BERT(input_ids), mask); a text without types has type 0."""

    def __init__(self, bert: BERT, head: Callable[[Tensor, Tensor], Tensor], parts: nn.Module) -> None:
        super().__init__()
        self.bert, self.head, self.parts = bert, head, parts
        self.positions = Positions(bert.place)

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        bert = self.bert
        positions = torch.arange(input_ids.shape[1], device=input_ids.device)
        x = bert.embedding(input_ids) + self.positions(positions) + bert.types.weight[0]
        states = bert.norm(_encode(bert.layers, bert.embedding_norm(x), attention_mask))
        return self.head(states, attention_mask.bool())


class DecoderGraph(nn.Module):
    """The logits of tokens behind a past; padding stands anywhere, and has mask 0."""

    def __init__(self, model: GPT2) -> None:
        super().__init__()
        self.model, self.positions = model, Positions(model.place)

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor, past_mask: Tensor, past_keys: Tensor, past_values: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:  # "b t", "b t", "b p", "l b h p d" twice
        model, past = self.model, past_keys.shape[3]
        mask = torch.cat([past_mask, attention_mask], 1)
        places = torch.arange(mask.shape[1], device=input_ids.device)
        # a tracer would take places[past:] as shorter than places
        own_places = torch.arange(input_ids.shape[1], device=input_ids.device) + past
        positions = (mask.cumsum(1) - 1).clamp_min(0).index_select(1, own_places)
        visible = (places[None, :] <= own_places[:, None])[None, None] & mask.bool()[:, None, None, :]
        x, hidden = model.embedding(input_ids) + self.positions(positions), _hidden(visible)
        layers: Any = model.stack.layers
        kept = []
        for n, layer in enumerate(layers):
            entered = layer.around_attention.enter(x)
            new = _keys_and_values(layer.attention, entered)
            keys, values = (torch.cat([p[n], t], 2) for p, t in zip((past_keys, past_values), new, strict=True))
            kept.append((keys, values))
            x = layer.around_attention.leave(x, _attend(layer.attention, entered, keys, values, hidden))
            x = _feed(layer, x)
        keys, values = (torch.stack(tensors) for tensors in zip(*kept, strict=True))
        return model.output(model.stack.norm(x)), keys, values


class SourceGraph(nn.Module):
    """The keys and values of a source for every layer of the decoder."""

    def __init__(self, model: Transformer) -> None:
        super().__init__()
        self.model, self.positions = model, Positions(model.source_place)

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> tuple[Tensor, Tensor]:
        model = self.model
        positions = torch.arange(input_ids.shape[1], device=input_ids.device)
        x = model.scale * model.source(input_ids) + self.positions(positions)
        encoded = model.source_norm(_encode(model.encoder, x, attention_mask))
        decoder: Any = model.decoder
        pairs = [_keys_and_values(layer.cross_attention, encoded) for layer in decoder]
        keys, values = (torch.stack(tensors) for tensors in zip(*pairs, strict=True))
        return keys, values


class StepGraph(nn.Module):
    """The logits of the next tokens of translations, all of which are equally long."""

    def __init__(self, model: Transformer) -> None:
        super().__init__()
        self.model, self.positions = model, Positions(model.target_place)

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor,
        source_keys: Tensor,
        source_values: Tensor,
        past_keys: Tensor,
        past_values: Tensor,
    ) -> tuple[Tensor, Tensor, Tensor]:  # "b t", "b s", "l b h s d" twice, "l b h p d" twice
        model, past = self.model, past_keys.shape[3]
        places = torch.arange(input_ids.shape[1] + past, device=input_ids.device)
        x = model.scale * model.target(input_ids) + self.positions(places[past:])
        hidden = _hidden((places[None, :] <= places[past:, None])[None, None])
        of_source = _hidden(attention_mask[:, None, None, :].bool())
        kept = []
        decoder: Any = model.decoder
        for n, layer in enumerate(decoder):
            entered = layer.around_self.enter(x)
            new = _keys_and_values(layer.self_attention, entered)
            keys, values = (torch.cat([p[n], t], 2) for p, t in zip((past_keys, past_values), new, strict=True))
            kept.append((keys, values))
            x = layer.around_self.leave(x, _attend(layer.self_attention, entered, keys, values, hidden))
            entered = layer.around_cross.enter(x)
            read = _attend(layer.cross_attention, entered, source_keys[n], source_values[n], of_source)
            x = _feed(layer, layer.around_cross.leave(x, read))
        keys, values = (torch.stack(tensors) for tensors in zip(*kept, strict=True))
        return model.output(model.target_norm(x)), keys, values


def graphs_of(parts: Exportable) -> list[Graph]:
    """The graphs of a model; raises ValueError for a part that they do not have."""
    model = parts.model
    if isinstance(model, Transformer):
        check_plain(_FORMAT, model, model.source_place, model.target_place)
        return _translator_graphs(model)
    if isinstance(model, GPT2):
        if model.stack.memory:
            raise ValueError(f"the memory of {model.stack.memory} tokens is not exported; train with memory=0")
        check_plain(_FORMAT, model, model.place)
        return [_decoder_graph(model)]
    encoder = _encoder(model)
    if encoder is None:
        raise ValueError(
            f"a {type(model).__name__} is not exported as a graph; train one that is: a Transformer, a GPT2, a "
            "BERTMaskedLM, or a TextEmbedder or EncoderClassifier of the last layer"
        )
    bert, head, output = encoder
    check_plain(_FORMAT, bert, bert.place)
    module = EncoderGraph(bert, head, model).eval()
    ids = torch.ones(3, 5, dtype=torch.long)
    # two tensors: one for both would be traced as one input
    inputs = {"input_ids": ids, "attention_mask": ids.clone()}
    longest = len(module.positions.table)
    return [Graph("encoder", module, inputs, dict.fromkeys(inputs, _IDS), (output,), longest)]


def has_encoder_graph(model: nn.Module) -> bool:
    """Whether a model is a BERT with a head that graphs have."""
    return _encoder(model) is not None


def _encoder(model: nn.Module) -> tuple[BERT, Callable[[Tensor, Tensor], Tensor], str] | None:
    """The BERT in a model, the function of its states and of the mask, and the name of the result."""
    if isinstance(model, BERTMaskedLM):
        return model.encoder, lambda states, inside: model.output(model.head(states)), "logits"
    if isinstance(model, ReleasedClassifier):
        return model.classifier.encoder, lambda states, inside: model.classifier.head(states), "logits"
    if isinstance(model, EncoderClassifier) and not model.encoder.levels:
        return model.encoder.bert, lambda states, inside: model.output(pool(states, inside, model.pooling)), "logits"
    if isinstance(model, TextEmbedder) and not model.encoder.levels:

        def embed(states: Tensor, inside: Tensor) -> Tensor:
            vectors = pool(states, inside, model.pooling)
            return F.normalize(vectors, dim=-1) if model.normalize else vectors

        return model.encoder.bert, embed, "vectors"
    return None


def _empty(layers: Any, attention: MultiHead, length: int) -> Tensor:
    return torch.zeros(len(layers), 3, attention.heads, length, attention.head_dim)


def _decoder_graph(model: GPT2) -> Graph:
    layers: Any = model.stack.layers
    past, ids = _empty(layers, layers[0].attention, 4), torch.ones(3, 5, dtype=torch.long)
    inputs = {
        "input_ids": ids,
        "attention_mask": ids.clone(),
        "past_mask": torch.ones(3, 4, dtype=torch.long),
        "past_keys": past,
        "past_values": past.clone(),
    }
    axes: dict[str, tuple[str | None, ...]] = {
        "input_ids": _IDS,
        "attention_mask": _IDS,
        "past_mask": ("batch", "past"),
        "past_keys": _CACHE,
        "past_values": _CACHE,
    }
    module = DecoderGraph(model).eval()
    return Graph("decoder", module, inputs, axes, ("logits", "keys", "values"), len(module.positions.table))


def _translator_graphs(model: Transformer) -> list[Graph]:
    ids = torch.ones(3, 5, dtype=torch.long)
    source = SourceGraph(model).eval()
    read = {"input_ids": ids, "attention_mask": ids.clone()}
    decoder: Any = model.decoder
    past, of_source = (_empty(decoder, decoder[0].self_attention, length) for length in (4, 6))
    inputs = {
        "input_ids": ids,
        "attention_mask": torch.ones(3, 6, dtype=torch.long),
        "source_keys": of_source,
        "source_values": of_source.clone(),
        "past_keys": past,
        "past_values": past.clone(),
    }
    axes = {
        "input_ids": _IDS,
        "attention_mask": ("batch", "source"),
        "source_keys": _SOURCE,
        "source_values": _SOURCE,
        "past_keys": _CACHE,
        "past_values": _CACHE,
    }
    longest = len(source.positions.table)
    return [
        Graph("source", source, read, dict.fromkeys(read, _IDS), ("source_keys", "source_values"), longest),
        Graph("step", StepGraph(model).eval(), inputs, axes, ("logits", "keys", "values"), longest),
    ]

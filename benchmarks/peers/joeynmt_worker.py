"""The worker of JoeyNMT: runs in its environment and uses its own parts throughout.

Its models, data sets, batch iterator, TrainManager, loss, optimiser and predict() do the work. Only the lines of
TrainManager.train_and_validate that follow a training step (clip, update, clear) are repeated here, because that method
always validates and saves checkpoints.
"""

import importlib.metadata
import itertools
import platform
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from joeynmt.config import parse_global_args
from joeynmt.prediction import predict, prepare
from joeynmt.training import TrainManager

from benchmarks.peers.talk import Answer, Setting, scratch, serve


def configuration(setting: Setting, data: Path, folder: Path, seed: int) -> dict[str, Any]:
    """The configuration that a user of JoeyNMT writes as YAML."""
    embeddings = {"embedding_dim": setting.width, "dropout": setting.dropout, "scale": setting.kind == "transformer"}
    sizes: dict[str, Any] = {
        "hidden_size": setting.width,
        "num_layers": setting.layers,
        "dropout": setting.dropout,
        "embeddings": embeddings,
    }
    encoder: dict[str, Any]
    decoder: dict[str, Any]
    if setting.kind == "transformer":
        sizes |= {"type": "transformer", "num_heads": setting.heads, "ff_size": setting.feed_forward}
        encoder = decoder = sizes | {"layer_norm": "pre", "activation": "relu"}
    else:
        sizes |= {"type": "recurrent", "rnn_type": "gru"}
        encoder = sizes | {"bidirectional": True}
        decoder = sizes | {
            "attention": setting.attention,
            "input_feeding": setting.input_feeding,
            "init_hidden": "bridge",
            "hidden_dropout": setting.dropout,
        }
    side = {"level": "word", "tokenizer_type": None, "lowercase": False, "voc_file": str(data / "vocabulary.txt")}
    return {
        "name": setting.name,
        "model_dir": str(folder),
        "use_cuda": False,
        "random_seed": seed,
        "data": {
            "train": str(data / "train"),
            "test": str(data / "test"),
            "dataset_type": "plain",
            "src": side | {"lang": "src"},
            "trg": side | {"lang": "trg"},
        },
        "training": {
            "batch_size": setting.sentences,
            "batch_type": "sentence",
            "shuffle": False,  # the files are shuffled already, so that both systems get the same batches
            "normalization": "tokens",
            "label_smoothing": setting.smoothing,
            "optimizer": "adamw",
            "learning_rate": setting.rate,
            "scheduling": "plateau",  # a schedule is required; this one changes the rate only after a validation
            "adam_betas": [0.9, 0.98],
            "clip_grad_norm": setting.clip,
        },
        "testing": {"batch_size": setting.sentences, "batch_type": "sentence"},
        "model": {
            "tied_embeddings": True,
            "tied_softmax": True,
            "initializer": "xavier_uniform",
            "embed_initializer": "normal",
            "embed_init_weight": setting.width**-0.5,
            "encoder": encoder,
            "decoder": decoder,
        },
    }


class Peer:
    """One JoeyNMT model in training."""

    def load(self, setting: dict[str, Any], data: str, seed: int, own: bool) -> Answer:
        assert not own, "the batches of JoeyNMT are those that all share"
        torch.set_num_threads(1)
        torch.manual_seed(seed)
        folder = scratch()
        self.args = parse_global_args(configuration(Setting(**setting), Path(data), folder, seed), mode="train")
        self.model, self.train_data, _, self.test_data = prepare(self.args, rank=0, mode="train")
        self.trainer = TrainManager(
            rank=0,
            model=self.model,
            model_dir=folder,
            device=self.args.device,
            autocast=self.args.autocast,
            seed=seed,
            train_args=self.args.train,
            dev_args=self.args.test,
        )
        self.steps = self._steps()
        return {
            "parameters": sum(p.numel() for p in self.model.parameters()),
            "versions": {
                "joeynmt": importlib.metadata.version("joeynmt"),
                "torch beside joeynmt": torch.__version__,
                "python beside joeynmt": platform.python_version(),
            },
        }

    def _steps(self) -> Iterator[tuple[int, int, float]]:
        """Yields per training step: target tokens, target positions with padding, and the loss per token."""
        trainer, wanted = self.trainer, self.args.train
        batches = self.train_data.make_iter(
            batch_size=wanted.batch_size,
            batch_type=wanted.batch_type,
            seed=trainer.seed,
            shuffle=wanted.shuffle,
            device=self.args.device,
            eos_index=self.model.eos_index,
            pad_index=self.model.pad_index,
        )
        for epoch in itertools.count(1):
            batches.batch_sampler.set_seed(trainer.seed + epoch)
            for batch in batches:
                loss, _ = trainer._train_step(batch)
                trainer.clip_grad_fun(parameters=self.model.parameters())
                trainer.optimizer.step()
                self.model.zero_grad()
                yield batch.ntokens, batch.trg.numel(), loss

    def train(self, steps: int) -> Answer:
        self.model.train()
        start = time.process_time()
        done = list(itertools.islice(self.steps, steps))
        seconds = time.process_time() - start
        tokens, places, losses = zip(*done, strict=True)
        return {"tokens": sum(tokens), "places": sum(places), "cpu_seconds": seconds, "loss": sum(losses) / len(losses)}

    def decode(self, start: int, stop: int, beam: int, alpha: float, longest: int) -> Answer:
        args = self.args.test._replace(beam_size=beam, beam_alpha=alpha, max_output_length=longest)
        self.test_data.indices = list(range(start, stop))
        began = time.process_time()
        *_, pieces, _, _ = predict(
            model=self.model,
            data=self.test_data,
            device=self.args.device,
            n_gpu=0,
            args=args,
            autocast=self.args.autocast,
        )
        seconds = time.process_time() - began
        # each has its end-of-sentence token, unless it was cut off
        return {"sentences": len(pieces), "tokens": sum(map(len, pieces)), "cpu_seconds": seconds}


if __name__ == "__main__":
    peer = Peer()
    serve({"load": peer.load, "train": peer.train, "decode": peer.decode})

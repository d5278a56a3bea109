"""Captioning: the work of a Caption task, its pictures read and their captions cut into tokens."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from regard.attn.call import Need
from regard.data.embedded.scenes import Captioned, scenes
from regard.data.images.captions import read_captions
from regard.data.text.batching import plan_batches, source_batch
from regard.data.text.special_tokens import BOS, PAD
from regard.data.text.tokenizer import Tokenizer
from regard.decoding.search import Greedy, Search
from regard.layers.rnn.decoder_base import DecoderOutput
from regard.losses import doubly_stochastic, linear_cross_entropy, reinforce
from regard.metrics.text import SCORES
from regard.models.show_attend_tell.model import ShowAttendTell
from regard.tasks._image_data import ImageStats, brightness, counted, remember, tensor
from regard.tasks.caption.options import Caption
from regard.tasks.caption.predictor import Captioner, build, has_tokens, pointing, read_tokens, write_tokens
from regard.tasks.translate.predictor import TranslationHypothesis
from regard.training.protocol import Loss, ValidationResult

# of files without pictures to validate on, the share that is held out for it
VALID = 0.1
# how fast the baseline of REINFORCE follows what is earned  (Xu et al. 2015, 4.1)
_RATE = 0.1
# captions are parted by their length into so many parts
_PARTS = 3
# pictures of a validation's batch
_AT_ONCE = 128


@dataclass(frozen=True, eq=False)
class CaptionBatch:
    """Pictures and a caption of each, between BOS and EOS, PAD behind."""

    x: Tensor  # "b c h w"
    target: Tensor  # "b t+1"

    def to(self, device: torch.device) -> "CaptionBatch":
        return CaptionBatch(self.x.to(device), self.target.to(device))


@dataclass(frozen=True, eq=False)
class CaptionProblem:
    """What training asks of a caption task."""

    task: Caption
    train: Captioned
    valid: Captioned
    pairs: Sequence[tuple[int, Sequence[int]]]  # the number of a training picture, and one of its captions as tokens
    tokens: Tokenizer
    facts: ImageStats
    told: str
    counted: str = "tokens"

    @staticmethod
    def of(task: Caption, folder: Path, new: bool) -> "CaptionProblem":
        train, valid = splits(task)
        facts = _facts(train, valid)
        alike(valid, f"valid={task.valid}", facts)
        new = new or not has_tokens(folder)
        # what is looked at only when all is trained: better told now than then
        if new and task.test is not None:
            alike(read(task, "test"), f"test={task.test}", facts)
        lines = [line for said in train.captions for line in said]
        tokens = Tokenizer.train(task.choice("tokens"), lines, task.vocabulary) if new else read_tokens(folder)
        if new:
            write_tokens(tokens, folder)
        remember(facts, folder, new)
        every = [(n, ids) for n, said in enumerate(train.captions) for ids in tokens.encode(said)]
        pairs = [(n, ids) for n, ids in every if len(ids) <= task.max_length]
        if not pairs:
            raise ValueError(
                f"no caption has at most max_length={task.max_length} tokens, so there is none to learn from; raise it"
            )
        shown = len({n for n, _ in pairs})
        told = f"{len(pairs):,} captions of {shown:,} pictures to train on, {len(valid):,} pictures to validate, "
        told += f"{len(tokens):,} tokens"
        dropped = len(every) - len(pairs)
        told += f"; dropped {dropped:,} captions of more than {task.max_length} tokens" if dropped else ""
        return CaptionProblem(task, train, valid[: task.valid_lines], pairs, tokens, facts, told)

    def model(self) -> ShowAttendTell:
        return build(self.task, self.facts.channels, len(self.tokens))

    def batches(self, epoch: int) -> Sequence[NDArray[np.int64]]:
        """Which captions go together: short, middling or long ones. The first time short ones come first, then longer.

        What there is to see is learned where little is there, and where to look then, when there is something to see
        (a curriculum: Bengio et al. 2009). Batches of one length alone would not do: how long a caption is tells much
        of what it says, and every batch would be unlike the one before.
        """
        lengths = np.array([len(ids) for _, ids in self.pairs])
        low, high = int(lengths.min()), int(lengths.max())
        part = _PARTS * (lengths - low) // (high - low + 1)
        longest = np.array([lengths[part == n].max(initial=0) for n in range(_PARTS)])[part]
        planned = plan_batches(longest, longest, self.task.batch, self.task.seed, epoch)
        return planned if epoch else sorted(planned, key=lambda index: int(part[index].max()))

    def batch(self, planned: NDArray[np.int64], rank: int, world: int) -> CaptionBatch | None:
        mine = [self.pairs[n] for n in planned[rank::world]]
        if not mine:
            return None
        pixels = self.train.pixels[[n for n, _ in mine]]
        return CaptionBatch(tensor(pixels, self.facts), targets([ids for _, ids in mine]))

    def count(self, batch: CaptionBatch) -> int:
        return int((batch.target[:, 1:] != PAD).sum())

    def loss(self, model: nn.Module, batch: CaptionBatch) -> Loss:
        """Soft: −log p(y) + λ Σ_i (1 − Σ_t α_ti)². Hard: −log p(y | s) and REINFORCE  (Xu et al. 2015, 4.1 and 4.2)."""
        assert isinstance(model, ShowAttendTell)
        doubly = self.task.choice("doubly") if self.task.attention == "soft" else 0.0
        total, nll, taught, keep = _likelihood(model, batch, self.task.smoothing, Need(weights=doubly > 0))
        if taught.weights is not None:
            total = total + doubly * doubly_stochastic(taught.weights, keep).sum()
        if taught.log_prob is not None:
            total = total + drawn(model.baseline, taught, nll, keep, self.task.choice("entropy"))
        return Loss(total, len(nll), {"nll": nll.sum()})

    def expect(self, model: nn.Module, sums: Mapping[str, float], count: int) -> None:
        """Hard: b ← (1 − r) b + r mean log p(y_t), the moving average of what is earned  (Xu et al. 2015, 4.1)."""
        assert isinstance(model, ShowAttendTell)
        if self.task.attention == "hard":
            model.baseline.lerp_(torch.full_like(model.baseline, -sums["nll"] / count), _RATE)

    def validate(self, model: nn.Module) -> ValidationResult:
        assert isinstance(model, ShowAttendTell)
        captioner = Captioner(model, self.tokens, self.facts, self.task.max_length)
        values, said = evaluate(captioner, self.valid, Greedy())
        values["nll"] = self._nll(model)
        n = min(3, len(said) - 1)
        sample = f"{said[n].text}   (right: {' / '.join(self.valid.captions[n])})"
        return ValidationResult(values, "bleu", higher_is_better=True, sample=sample)

    @torch.no_grad()
    def _nll(self, model: ShowAttendTell) -> float:
        """−log p of a token of the first caption of every picture."""
        device = next(model.parameters()).device
        total, count = 0.0, 0
        ids = self.tokens.encode([said[0] for said in self.valid.captions])
        for at in range(0, len(ids), _AT_ONCE):
            here = slice(at, at + _AT_ONCE)
            batch = CaptionBatch(tensor(self.valid.pixels[here], self.facts), targets(ids[here])).to(device)
            nll = _likelihood(model, batch, 0.0, Need())[1]
            total, count = total + float(nll.sum()), count + len(nll)
        return total / count


def _likelihood(
    model: ShowAttendTell, batch: CaptionBatch, smoothing: float, need: Need
) -> tuple[Tensor, Tensor, DecoderOutput, Tensor]:
    taught = model.teacher_force(batch.x, batch.target[:, :-1], need)
    right = batch.target[:, 1:]
    keep = right != PAD
    output = model.output
    total, nll = linear_cross_entropy(
        taught.states[keep], output.weight, right[keep], bias=output.bias, smoothing=smoothing
    )
    return total, nll, taught, keep


def drawn(baseline: Tensor, taught: DecoderOutput, nll: Tensor, keep: Tensor, entropy: float) -> Tensor:
    """Σ_t −(R_t − b_t) log p(s_t) − λ H(s_t), R_t = Σ_{t' ≥ t} log p(y_t'): what teaches where to look.

    The paper pays every draw of a caption with the likelihood of all its words (eq. 11 and 12); those before the draw
    do not depend on it, so leaving them out changes no expectation and makes it quieter. b_t is `baseline`, the moving
    average of log p of a word, for each word that is left.
    """
    assert taught.log_prob is not None
    assert taught.entropy is not None
    earned = torch.zeros_like(taught.log_prob)
    earned[keep] = -nll.to(earned.dtype)
    reward, words = (t.flip(1).cumsum(1).flip(1) for t in (earned, keep.to(earned.dtype)))
    level = baseline * words
    loss = reinforce(
        taught.log_prob[keep], reward[keep], level[keep], entropy=taught.entropy[keep], entropy_weight=entropy
    )
    return loss * len(nll)


def targets(lines: Sequence[Sequence[int]]) -> Tensor:  # -> "b t+1"
    """Captions between BOS and EOS, PAD behind."""
    ids, _ = source_batch(lines)
    return torch.cat([torch.full((len(ids), 1), BOS), ids], 1)


def evaluate(
    captioner: Captioner, some: Captioned, search: Search
) -> tuple[dict[str, float], list[TranslationHypothesis]]:
    """BLEU against all captions of each picture; where it is known what stands where, pointing and exact captions."""
    said = [found[0] for found in captioner.describe(some.pixels, search)]
    lines = [one.text for one in said]
    values = {"bleu": SCORES["bleu"][0](lines, some.captions)}
    if some.boxes is not None:
        values["exact"] = SCORES["exact"][0](lines, some.captions)
        size = some.pixels.shape[1], some.pixels.shape[2]
        looked = captioner.look(some.pixels, said)
        values["pointing"] = pointing(looked, some.boxes, captioner.grid(), size)
        if captioner.hard:
            chance = np.random.default_rng(0)
            values["pointing_drawn"] = pointing(looked, some.boxes, captioner.grid(), size, chance)
    return values, said


def read(task: Caption, split: str) -> Captioned:
    """The pictures of "train", "valid" or "test"; those of "test" are those of "valid" where `has_test` is false."""
    if task.train is None:
        return scenes(split, task.seed)  # type: ignore[arg-type]
    if split == "test" and task.test is not None:
        return read_captions(task.test, task.size)
    if split != "train" and task.valid is not None:
        return read_captions(task.valid, task.size)
    train, valid = splits(task)
    return train if split == "train" else valid


def has_test(task: Caption) -> bool:
    """Are there pictures that had no part in the choice of weights?"""
    return task.train is None or task.test is not None


def splits(task: Caption) -> tuple[Captioned, Captioned]:
    """The pictures to learn from and those to validate on, every file read once."""
    if task.train is None:
        return scenes("train", task.seed), scenes("valid", task.seed)
    every = read_captions(task.train, task.size)
    if task.valid is not None:
        return every, read_captions(task.valid, task.size)
    order = np.random.default_rng(task.seed).permutation(len(every))
    held = max(round(VALID * len(every)), 1)
    if held >= len(every):
        raise ValueError(
            f"{task.train} names {len(every)} picture, and one is needed to validate on; name more, or give valid"
        )
    return every[np.sort(order[held:])], every[np.sort(order[:held])]


def alike(some: Captioned, named: object, facts: ImageStats) -> None:
    """Raises if pictures are of another size or colour than those that are learned from."""
    shape, learned = some.pixels.shape[1:], (facts.height, facts.width, facts.channels)
    if shape != learned:
        way = "make them alike, or train with size" if shape[:2] != learned[:2] else "make all grey, or all coloured"
        raise ValueError(
            f"the pictures of {named} are {shape}, (height, width, channels), those to learn from {learned}; {way}"
        )


def _facts(train: Captioned, valid: Captioned) -> ImageStats:
    _, height, width, channels = train.pixels.shape
    # of scenes on a ground the ground becomes 0: what stands there stands out
    below = counted(train.pixels).cumsum()
    middle = np.searchsorted(below, [(below[-1] - 1) // 2, below[-1] // 2], side="right").mean() / 255
    spread = brightness(train.pixels)[1]
    return ImageStats(channels, height, width, [], float(middle), max(spread, 1e-6), _digest(train), _digest(valid))


def _digest(some: Captioned) -> str:
    digest = sha256(np.ascontiguousarray(some.pixels).data)
    digest.update("\n".join("\t".join(said) for said in some.captions).encode())
    return digest.hexdigest()


def fresh(task: Caption, folder: Path) -> ShowAttendTell:
    """The model of a run, without its weights."""
    return Captioner.of(task, folder).model


prepare = CaptionProblem.of


def rehearse(task: Caption) -> None:
    """Builds a small one and calls it, so that what cannot be is told before any data is read."""
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        build(task, 1, 11)(torch.zeros(2, 1, 8, 8), torch.full((2, 3), BOS))

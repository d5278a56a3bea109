"""The task caption: its training problem, its data, its evaluation."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from regard.attn.call import Need
from regard.data.embedded.scenes import NAMES, CaptionedImages, scenes
from regard.data.images.captions import read_captions
from regard.data.splitting import Parts, held_out, require_held_out
from regard.data.text.batching import long_sample_warnings, plan_batches
from regard.data.text.special_tokens import PAD
from regard.data.text.tokenizer import Tokenizer
from regard.decoding.search import Greedy, Search
from regard.inference.evaluation import Evaluation, Progress, sample_rows, timed
from regard.inference.evaluation_split import EvaluationSplit, record_splits
from regard.losses import doubly_stochastic
from regard.metrics.pointing import pointing
from regard.metrics.text import Cut, chosen_cut, scored, signature
from regard.models.show_attend_tell.image_captioner import ImageCaptioner
from regard.tasks.base import Task
from regard.tasks.caption.options import Caption, PretrainedCaptionOptions
from regard.tasks.caption.predictor import TOKENS, Captioner, build_captioner
from regard.tasks.shared.image_data import (
    ImageStats,
    brightness,
    contents,
    image_tensor,
    save_or_check_stats,
    value_counts,
    with_initial_stats,
)
from regard.tasks.shared.image_encoder import PretrainedImageEncoder, smallest_image_encoder
from regard.tasks.shared.text_generation import (
    GeneratedText,
    between_marks,
    forced_loss,
    hard_attention_loss,
    initial_tokenizer,
    mean_nll,
    read_tokenizer,
    write_tokenizer,
)
from regard.tasks.shared.text_options import EvaluateSearch
from regard.training.protocol import Loss, TensorBatch, TrainingProblem, ValidationResult

# the share of the training images that is held out where files have no validation images
_VALID = 0.1
# the rate of the moving average that is the baseline of REINFORCE  (Xu et al. 2015, 4.1)
_RATE = 0.1
# groups of captions of similar length
_GROUPS = 3
# images per forward pass of a validation
_BATCH = 128


@dataclass(frozen=True, eq=False)
class CaptionBatch(TensorBatch):
    """Images and a caption of each, between BOS and EOS, with PAD behind it."""

    x: Tensor  # "b c h w"
    target: Tensor  # "b t+1"


@dataclass(frozen=True, eq=False)
class CaptionProblem(TrainingProblem[ImageCaptioner, CaptionBatch]):
    """−log p(y | x) of captions, with the doubly stochastic penalty of soft, or REINFORCE for hard attention."""

    config: Caption
    train: CaptionedImages
    valid: CaptionedImages
    pairs: Sequence[tuple[int, Sequence[int]]]  # the number of a training image, and one of its captions as tokens
    tokenizer: Tokenizer
    stats: ImageStats
    summary: str
    encoder: PretrainedImageEncoder | None = None
    bleu: Cut = "13a"
    shared: Sequence[str] = ()
    unit: str = "tokens"

    def build_model(self) -> ImageCaptioner:
        return build_captioner(self.config, self.stats, self.tokenizer, self.encoder)

    def resolved_options(self) -> dict[str, Any] | None:
        return {"bleu": self.bleu} if self.config.train is not None else None

    def warnings(self) -> Sequence[str]:
        return long_sample_warnings([np.array([len(ids) for _, ids in self.pairs])], self.config.batch)

    def plan_epoch(self, epoch: int) -> Sequence[NDArray[np.int64]]:
        """Batches of short, of middling and of long captions; in the first epoch the short ones come first.

        The model learns to see on images with few objects, and then where to attend, when it can see (a curriculum:
        Bengio et al. 2009). Groups are not finer, because the length of a caption says much about its content, and
        every batch would be unlike the one before.
        """
        lengths = np.array([len(ids) for _, ids in self.pairs])
        low, high = int(lengths.min()), int(lengths.max())
        group = _GROUPS * (lengths - low) // (high - low + 1)
        longest = np.array([lengths[group == n].max(initial=0) for n in range(_GROUPS)])[group]
        planned = plan_batches((longest, longest), self.config.batch, self.config.seed, epoch)
        return planned if epoch else sorted(planned, key=lambda index: int(group[index].max()))

    def load_batch(self, planned: NDArray[np.int64], rank: int, world: int) -> CaptionBatch | None:
        pairs = [self.pairs[n] for n in planned[rank::world]]
        if not pairs:
            return None
        pixels = self.train.pixels[[n for n, _ in pairs]]
        return CaptionBatch(image_tensor(pixels, self.stats), between_marks([ids for _, ids in pairs]))

    def num_terms(self, batch: CaptionBatch) -> int:
        return int((batch.target[:, 1:] != PAD).sum())

    def loss(self, model: ImageCaptioner, batch: CaptionBatch) -> Loss:
        """Soft: −log p(y) + λ Σ_i (1 − Σ_t α_ti)². Hard: −log p(y | s) and REINFORCE  (Xu et al. 2015, 4.1 and 4.2)."""
        doubly = self.config.doubly or 0.0
        loss = forced_loss(model, [batch.x], batch.target, self.config.smoothing, Need(weights=doubly > 0))
        total = loss.total
        if loss.output.weights is not None:
            total = total + doubly * doubly_stochastic(loss.output.weights, loss.keep).sum()
        if loss.output.log_prob is not None:
            assert self.config.entropy is not None
            total = total + hard_attention_loss(loss, model.baseline, self.config.entropy)
        return Loss(total, len(loss.nll), {"nll": loss.nll.sum()})

    def after_step(self, model: ImageCaptioner, sums: Mapping[str, float], count: int) -> None:
        """Hard: b ← (1 − r) b + r mean log p(y_t), the moving average of the rewards  (Xu et al. 2015, 4.1)."""
        if self.config.attention_kind == "hard":
            model.baseline.lerp_(torch.full_like(model.baseline, -sums["nll"] / count), _RATE)

    def validate(self, model: ImageCaptioner) -> ValidationResult:
        captioner = Captioner(model, self.tokenizer, self.stats, self.config.max_length)
        values, captions = caption_scores(captioner, self.valid, Greedy(), cut=self.bleu)
        values["nll"] = self._nll(model)
        n = min(3, len(captions) - 1)
        sample = f"{captions[n].text}   (right: {' / '.join(self.valid.captions[n])})"
        return ValidationResult(values, self.config.metric, self.config.metrics[self.config.metric], sample)

    def _nll(self, model: ImageCaptioner) -> float:
        """−log p of a token of the first caption of every image."""
        device = next(model.parameters()).device
        ids = self.tokenizer.encode([captions[0] for captions in self.valid.captions])
        parts = (slice(start, start + _BATCH) for start in range(0, len(ids), _BATCH))
        pairs = ((image_tensor(self.valid.pixels[part], self.stats), between_marks(ids[part])) for part in parts)
        return mean_nll(model, (([x.to(device)], target.to(device)) for x, target in pairs))


class CaptionTask(Task[Caption, Captioner]):
    """Trains, loads and evaluates captioners."""

    def prepare(self, folder: Path, new: bool) -> CaptionProblem:
        config = self.config
        # a run that was killed while it read its data has nothing to load yet
        new = new or not (folder / TOKENS).exists()
        encoder = None
        if isinstance(config.model, PretrainedCaptionOptions):
            encoder = PretrainedImageEncoder.prepare(config.model, folder, new)
        train, valid = read_train_and_valid(config)
        stats = with_initial_stats(caption_stats(train, valid), folder)
        stats = stats if encoder is None else encoder.adapt(stats)
        _check_same_shape(valid, f"valid={config.valid}", stats)
        # test images are needed only after training, but raise before it
        test = valid if config.test is None else read_captioned(config, "test")
        _check_same_shape(test, f"test={config.test}", stats)
        if new:
            lines = [line for captions in train.captions for line in captions]
            tokenizer = initial_tokenizer(
                folder, TOKENS, lambda: Tokenizer.train(config.tokens, lines, config.vocabulary)
            )
            write_tokenizer(tokenizer, folder / TOKENS)
        else:
            tokenizer = read_tokenizer(folder / TOKENS)
        save_or_check_stats(stats, folder, new)
        shared = record_splits(config, folder, Parts(train, valid, test), "pictures", contents, new)
        all_pairs = [(n, ids) for n, captions in enumerate(train.captions) for ids in tokenizer.encode(captions)]
        pairs = [(n, ids) for n, ids in all_pairs if len(ids) <= config.max_length]
        if not pairs:
            raise ValueError(
                f"no caption has at most max_length={config.max_length} tokens, so there is none to train on; raise it"
            )
        images, dropped = len({n for n, _ in pairs}), len(all_pairs) - len(pairs)
        summary = f"{len(pairs):,} captions of {images:,} images to train on, {len(valid):,} images to validate, "
        summary += f"{len(tokenizer):,} tokens"
        summary += f"; dropped {dropped:,} captions of more than {config.max_length} tokens" if dropped else ""
        valid = valid[: config.valid_lines]
        cut = _bleu_tokens(config, valid)
        if config.bleu is None and cut != "13a":
            summary += f"; BLEU is cut by {cut}, as the captions are written without spaces; --bleu says otherwise"
        return CaptionProblem(config, train, valid, pairs, tokenizer, stats, summary, encoder, cut, shared)

    def sketch(self) -> nn.Module:
        options = self.config.model
        if isinstance(options, PretrainedCaptionOptions):
            return options.build(smallest_image_encoder(options), 11)
        return options.build(1, 11)

    def predictor(self, folder: Path) -> Captioner:
        return Captioner.of(self.config, folder)

    def evaluate(self, predictor: Captioner, folder: Path, options: EvaluateSearch, progress: Progress) -> Evaluation:
        split = self._data(predictor.stats, folder, options)
        data = split.data
        cut = _bleu_tokens(self.config, data)
        (scores, captions), seconds = timed(
            lambda done: caption_scores(predictor, data, options.search, done, cut), len(data), progress
        )
        signed = signature(data.captions, cut)
        has_test = self.config.train is None or self.config.test is not None
        part = options.split if has_test else "valid"
        shown = sample_rows(len(captions))
        evaluation = Evaluation(
            scores,
            len(data),
            "pictures",
            split.name,
            seconds,
            predictions=[caption.text for caption in captions],
            samples=[_sample(data, captions, n) for n in shown],
            notes=[signed],
            facts={"split": split.name if options.test else part, "beam": options.beam, "signature": signed},
        )
        return split.annotate(evaluation)

    def _data(self, stats: ImageStats, folder: Path, options: EvaluateSearch) -> EvaluationSplit[CaptionedImages]:
        """The images to describe."""
        config = self.config
        split = EvaluationSplit.of(
            config,
            options,
            folder,
            "pictures",
            read_files=lambda files: read_captions(files[0], config.size),
            read_part=lambda part: read_captioned(config, part),
            contents=contents,
        )
        _check_same_shape(split.data, split.name, stats)
        return split


def _bleu_tokens(config: Caption, data: CaptionedImages) -> Cut:
    """The tokenisation of BLEU: the option, which a run of files records, or one that suits the captions."""
    lines = [line for captions in data.captions for line in captions]
    return chosen_cut(config.bleu, lines if config.train is not None else ())


def caption_scores(
    captioner: Captioner,
    data: CaptionedImages,
    search: Search,
    done: Callable[[int], object] | None = None,
    cut: Cut = "13a",
) -> tuple[dict[str, float], list[GeneratedText]]:
    """BLEU against all captions of each image; where the objects are known, also exact captions and pointing."""
    captions = [hypotheses[0] for hypotheses in captioner.describe(data.pixels, search, done=done)]
    lines = [caption.text for caption in captions]
    if data.boxes is None:
        return scored(["bleu"], lines, data.captions, cut), captions
    values = scored(["bleu", "exact"], lines, data.captions, cut)
    alignments = captioner.align(data.pixels, captions)
    tokens, weights = [each.target for each in alignments], [each.weights.cpu().double().numpy() for each in alignments]
    attended = (tokens, weights, data.boxes, NAMES, captioner.grid(), data.pixels.shape[1:3])
    values["pointing"] = pointing(*attended)
    if captioner.hard:
        values["pointing_drawn"] = pointing(*attended, np.random.default_rng(0))
    return values, captions


def read_captioned(config: Caption, split: str) -> CaptionedImages:
    """The images of "train", "valid" or "test"; without test files, those of "test" are those of "valid"."""
    if config.train is None:
        return scenes(split, config.seed)  # type: ignore[arg-type]
    if split == "test" and config.test is not None:
        return read_captions(config.test, config.size)
    if split != "train" and config.valid is not None:
        return read_captions(config.valid, config.size)
    train, valid = read_train_and_valid(config)
    return train if split == "train" else valid


def read_train_and_valid(config: Caption) -> tuple[CaptionedImages, CaptionedImages]:
    """The images to train and to validate on; every file is read once."""
    if config.train is None:
        return scenes("train", config.seed), scenes("valid", config.seed)
    data = read_captions(config.train, config.size)
    if config.valid is not None:
        return data, read_captions(config.valid, config.size)
    held = held_out(contents(data), _VALID, config.seed)
    require_held_out(held, config.train, "pictures")
    return data[np.flatnonzero(~held)], data[np.flatnonzero(held)]


def caption_stats(train: CaptionedImages, valid: CaptionedImages) -> ImageStats:
    """The statistics of captioned images; their mean is the median, so that the ground of a scene becomes 0."""
    _, height, width, channels = train.pixels.shape
    below = value_counts(train.pixels).cumsum()
    median = np.searchsorted(below, [(below[-1] - 1) // 2, below[-1] // 2], side="right").mean() / 255
    spread = brightness(train.pixels)[1]
    return ImageStats(channels, height, width, [], float(median), max(spread, 1e-6), _digest(train), _digest(valid))


def _digest(data: CaptionedImages) -> str:
    digest = sha256(np.ascontiguousarray(data.pixels).data)
    digest.update("\n".join("\t".join(captions) for captions in data.captions).encode())
    return digest.hexdigest()


def _check_same_shape(data: CaptionedImages, name: object, stats: ImageStats) -> None:
    """Raises if images have another size or number of channels than the training images."""
    shape, trained = data.pixels.shape[1:], (stats.height, stats.width, stats.channels)
    if shape != trained:
        way = "resize them, or train with size" if shape[:2] != trained[:2] else "make all grey, or all coloured"
        raise ValueError(
            f"the images of {name} are {shape}, (height, width, channels), those to train on {trained}; {way}"
        )


def _sample(data: CaptionedImages, captions: Sequence[GeneratedText], n: int) -> str:
    right = "" if captions[n].text in data.captions[n] else f"   right: {' / '.join(data.captions[n])}"
    return f"{captions[n].text}{right}"

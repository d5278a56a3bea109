"""PatchedPicture: a picture as tokens, its patches, so that the methods that explain texts explain it."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from regard.common.eval_mode import eval_mode
from regard.inference.bounded_classifier import PictureClassifier
from regard.inference.embedded_classifier import TokenInput, TokenLayer
from regard.recording.recorded_map import RecordedMap
from regard.recording.recording import Recording
from regard.recording.run import recorded

# patches per side of a picture that the model itself does not cut
_MOST = 16


class PatchPixels(nn.Module):
    """The pixels of patches, "b n d", as they are; a hook puts others in their place."""

    def forward(self, patches: Tensor) -> Tensor:
        return patches


class PatchedPicture:
    """One picture of a classifier. A patch that is left out is black.

    Patches are those that attend to each other, behind tokens of no patch, such as the class token; a picture of a
    model without such an attention is cut into at most 16 × 16 patches.
    """

    def __init__(self, predictor: PictureClassifier, picture: Any) -> None:
        self.predictor, self.model, self.classes = predictor, predictor.model, predictor.classes
        self.pixels = predictor.bounded_inputs([picture])[0].to(predictor.device, predictor.dtype)  # "c h w"
        attended = self._patch_map()
        height, width = self.pixels.shape[-2:]
        if attended is None or attended.grid is None:
            self.grid, self._specials = (_count(height), _count(width)), 0
        else:
            self.grid = attended.grid
            self._specials = attended.shape[-1] - self.grid[0] * self.grid[1]
        self._patch = height // self.grid[0], width // self.grid[1]
        self._layer = PatchPixels()

    @property
    def device(self) -> torch.device:
        return self.predictor.device

    @property
    def token_layers(self) -> tuple[TokenLayer, ...]:
        return (TokenLayer(self._layer),)

    def tokens(self) -> TokenInput:
        """The patches row by row."""
        rows, columns = self.grid
        names = [f"({row}, {column})" for row in range(rows) for column in range(columns)]
        specials = [f"[{n}]" for n in range(self._specials)]
        count = len(specials) + len(names)
        is_special = tuple(n < len(specials) for n in range(count))
        return TokenInput((*specials, *names), tuple(range(count)), is_special, (count,), (0,) * count)

    def encode_tokens(self, inputs: Sequence[Any]) -> list[TokenInput]:
        return [self.tokens() for _ in inputs]

    def token_logits(self, tokens: Sequence[TokenInput]) -> Tensor:  # -> "b k"
        vectors = self._vectors()
        is_there = vectors.new_zeros(len(tokens), len(vectors), 1)
        for row, each in zip(is_there, tokens, strict=True):
            row[list(each.ids)] = 1
        return self.predictor.bounded_logits(self._pictures(self._layer(vectors * is_there)))

    def vector_places(self, tokens: Sequence[TokenInput]) -> list[Tensor]:  # -> "n 3" each
        cells = [[(0, n, place) for place in each.ids] for n, each in enumerate(tokens)]
        return [torch.tensor(places, device=self.device) for places in cells]

    def token_recording(self, recording: Recording, tokens: TokenInput) -> Recording:
        maps = tuple(item for item in recording if _is_of_patches(item) and item.shape[-1] == len(self.tokens()))
        if not maps:
            raise ValueError(
                f"{type(self.model).__name__} has no attention between patches of the picture, so its attention "
                "explains nothing; use the method integrated-gradients or leave-one-out"
            )
        return replace(recording, maps=maps)

    @property
    def reading_row(self) -> int | None:
        return 0 if self._specials else None

    def grid_of(self, scores: Tensor) -> Tensor:  # "n" -> "rows columns"
        """The scores of the patches in their places."""
        return scores[self._specials :].reshape(self.grid)

    def _patch_map(self) -> RecordedMap | None:
        """The last attention between patches of the picture, if the model has one."""
        with torch.no_grad(), eval_mode(self.model), recorded(self.model) as recording:
            self.predictor.bounded_logits(self.pixels[None])
        maps = [item for item in recording if _is_of_patches(item)]
        height, width = self.pixels.shape[-2:]
        fitting = [m for m in maps if m.grid is not None and not height % m.grid[0] and not width % m.grid[1]]
        return fitting[-1] if fitting else None

    def _vectors(self) -> Tensor:  # -> "n d"
        """The pixels of every patch, and zeros for the tokens of none."""
        (rows, columns), (high, wide) = self.grid, self._patch
        channels = len(self.pixels)
        cut = self.pixels.reshape(channels, rows, high, columns, wide).permute(1, 3, 0, 2, 4)
        patches = cut.reshape(rows * columns, channels * high * wide)
        return torch.cat([patches.new_zeros(self._specials, patches.shape[1]), patches])

    def _pictures(self, vectors: Tensor) -> Tensor:  # "b n d" -> "b c h w"
        (rows, columns), (high, wide) = self.grid, self._patch
        cut = vectors[:, self._specials :].reshape(len(vectors), rows, columns, -1, high, wide)
        return cut.permute(0, 3, 1, 4, 2, 5).reshape(len(vectors), *self.pixels.shape)


def _is_of_patches(item: RecordedMap) -> bool:
    return item.kind == "self" and item.grid is not None and item.shape[-1] == item.shape[-2]


def _count(pixels: int) -> int:
    """The greatest number of equal patches along a side, at most 16."""
    return max(n for n in range(1, min(pixels, _MOST) + 1) if pixels % n == 0)

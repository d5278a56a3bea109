"""ClipConvNet: residual blocks over frames and places at once, with a gate in every block."""

from collections.abc import Sequence

import torch
from torch import Tensor

from regard.models.clips.clip_model import ClipModel, ClipOutput, prefix_lengths
from regard.models.convnet import ConvNet, MakeGate


class ClipConvNet(ClipModel):
    """logits = W mean_tp(blocks(x)) + b, by 3-D convolutions, or 1-D convolutions of a signal  (Tran et al. 2015).

    `gate`, a name of GATES or a function of the channels, is that of every block, for maps of three axes of positions,
    or of one. A gate weighs a map by all its frames, so a network that is causal has none. `depths` are (1, 1) and
    `stem_stride` is 2 unless given, of a signal (1, 1, 1) and 1.
    """

    def __init__(
        self,
        channels: int,
        classes: int,
        *,
        is_signal: bool = False,
        width: int = 16,
        depths: Sequence[int] | None = None,
        stem_stride: int | None = None,
        gate: str | MakeGate | None = None,
        dropout: float = 0.1,
        causal: bool = False,
    ) -> None:
        super().__init__()
        if causal and gate is not None:
            raise ValueError(
                "a gate weighs a map by all its frames, and a causal network reads no later one; leave out the gate, "
                "or causal"
            )
        self.channels, self.is_signal, self.causal = channels, is_signal, causal
        if depths is None:
            depths = (1, 1, 1) if is_signal else (1, 1)
        if stem_stride is None:
            stem_stride = 1 if is_signal else 2
        self.net = ConvNet(
            channels,
            classes,
            dims=1 if is_signal else 3,
            width=width,
            depths=depths,
            stem_stride=stem_stride,
            gate=gate,
            dropout=dropout,
            causal=causal,
        )

    def attend(self, x: Tensor, lengths: Tensor) -> ClipOutput:
        return ClipOutput(self.net(x.transpose(1, 2), lengths), None)

    def growing_logits(self, x: Tensor) -> Tensor:  # "1 t …" -> "t k"
        features = self.net.features(x.transpose(1, 2))[0]  # "d t' *s"
        steps = features.flatten(1) if features.ndim == 2 else features.flatten(2).mean(2)
        ends = -(-prefix_lengths(x.shape[1], x.device) // self.net.stride) - 1
        counts = torch.arange(1, steps.shape[1] + 1, device=x.device)
        return self.net.head(self.net.dropout((steps.cumsum(1) / counts).T[ends]))

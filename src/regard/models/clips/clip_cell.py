"""ClipCell: the recurrent gated attention cell reads a clip frame by frame."""

import torch
from torch import Tensor, nn

from regard.attn import observer
from regard.common import checks
from regard.gates.gated_cell import GatedCell
from regard.models.clips.clip_model import ClipModel, ClipOutput, prefix_lengths
from regard.models.clips.encoders import ClipEncoder, EncodedClip

# states of a signal that one step attends to
RECENT = 8


class ClipCell(ClipModel):
    """logits = W norm(y_t) + b, y the output of the GatedCell after the last frame, whose places each step attends to.

    `encoder` gives the states of the places. A signal has one place per step: there a step attends to the last `RECENT`
    states.
    """

    def __init__(
        self, encoder: ClipEncoder, classes: int, *, heads: int = 8, head_width: int = 16, dropout: float = 0.1
    ) -> None:
        super().__init__()
        checks.positive_ints("ClipCell", classes=classes)
        self.channels, self.is_signal, self.causal = encoder.channels, encoder.is_signal, encoder.causal
        self.encoder = encoder
        self.cell = GatedCell(encoder.out_features, heads, head_width)
        self.norm = nn.LayerNorm(self.cell.size)
        self.dropout = nn.Dropout(dropout)
        self.head = nn.Linear(self.cell.size, classes)

    def attend(self, x: Tensor, lengths: Tensor) -> ClipOutput:
        encoded = self.encoder(x, lengths)
        outs, ends = self._read(encoded), encoded.lengths
        # the cell reads on behind the end of a shorter clip, which changes nothing before
        last = outs.gather(1, (ends - 1)[:, None, None].expand(-1, 1, outs.shape[-1]))[:, 0]
        return ClipOutput(self._logits(last), None)

    def growing_logits(self, x: Tensor) -> Tensor:  # "1 t …" -> "t k"
        ends = prefix_lengths(x.shape[1], x.device)
        outs = self._read(self.encoder(x, ends[-1:]))
        return self._logits(outs[0, -(-ends // self.encoder.stride) - 1])

    def _read(self, encoded: EncodedClip) -> Tensor:  # -> "b t heads·width"
        states = encoded.states
        if self.is_signal:
            steps = torch.arange(states.shape[1], device=states.device)
            # before the first state stands the first again
            recent = (steps[:, None] + steps.new_tensor(range(1 - RECENT, 1))).clamp_min(0)
            return self.cell.read(states[:, recent, 0])[0]
        with observer.spatial_keys(encoded.grid):
            return self.cell.read(states)[0]

    def _logits(self, out: Tensor) -> Tensor:  # "b heads·width" -> "b k"
        return self.head(self.dropout(self.norm(out)))

"""EncoderTagger: a pretrained encoder below a CRF."""

import torch
from torch import Tensor, nn

from regard.common import checks
from regard.common.tag_schemes import TagScheme
from regard.data.text.subword_inputs import SubwordInputs
from regard.layers.character_convolution import CharacterConvolution
from regard.models.tagger import Tagger, TaggerOutput, TaggerSizes
from regard.models.transfer.fine_tuned_encoder import fine_tuning_rates
from regard.models.transfer.text_encoder import TextEncoder

# the state of a word, from those of its sub-words
SUBWORD_STATES = ("first", "mean")


class EncoderTagger(Tagger):
    """e_t = W h_t + b, h_t the state of the first sub-word of word t, or the mean of all  (Devlin et al. 2019, 5.3).

    With `characters` filters, h_t also has a convolution over the characters of the word: the tokenizers of many
    encoders ignore upper case. `layer_decay` and `head_rate` are those of EncoderClassifier.
    """

    def __init__(
        self,
        encoder: TextEncoder,
        sizes: TaggerSizes,
        *,
        subwords: str = "first",
        characters: int = 48,
        output: str = "crf",
        scheme: TagScheme | None = None,
        dropout: float = 0.1,
        layer_decay: float = 0.9,
        head_rate: float = 10.0,
    ) -> None:
        super().__init__(sizes, output=output, scheme=scheme, dropout=dropout)
        checks.known("subwords", subwords, SUBWORD_STATES)
        self.encoder, self.subwords = encoder, subwords
        self.characters = CharacterConvolution(sizes.characters, filters=characters) if characters else None
        self._finish(encoder.width + characters)
        self.lr_multipliers = fine_tuning_rates(self, layer_decay, head_rate)

    @property
    def embedding(self) -> nn.Embedding:
        return self.encoder.embedding

    def word_states(self, inputs: SubwordInputs) -> Tensor:  # -> "b t d"
        states: Tensor = self.encoder(inputs.tokens, inputs.num_tokens)  # "b p d"
        b, t = inputs.firsts.shape
        if self.subwords == "first":
            return states.gather(1, inputs.firsts.unsqueeze(-1).expand(b, t, states.shape[-1]))
        # the last row collects the tokens of no word
        sums = states.new_zeros(b, t + 1, states.shape[-1])
        sums = sums.scatter_add(1, inputs.word_ids.unsqueeze(-1).expand_as(states), states)
        counts = torch.zeros(b, t + 1, device=states.device, dtype=states.dtype)
        counts = counts.scatter_add(1, inputs.word_ids, torch.ones_like(inputs.word_ids, dtype=states.dtype))
        return (sums / counts.clamp_min(1).unsqueeze(-1))[:, :t]

    def forward(self, inputs: SubwordInputs) -> TaggerOutput:
        states = self.word_states(inputs)
        if self.characters is not None:
            states = torch.cat([states, self.characters(inputs.characters)[inputs.spellings]], -1)
        return self.score(states, inputs.lengths)

"""EncoderSlotTracker: a turn alone is one in a batch, and values that the turn names are marked."""

import torch

from regard.data.text.subword_inputs import SubwordEncoder
from regard.data.text.subwords import RunSubwords
from regard.data.text.tokenizer import Tokenizer
from regard.data.tracking.dialogue import Ontology, TrackedTurn
from regard.models.bert import BERT
from regard.models.transfer.slot_tracker import EncoderSlotTracker
from regard.models.transfer.text_encoder import TextEncoder
from regard.tasks.track.candidates import SlotCandidates
from regard.tasks.track.turn_encoder import TurnEncoder

TOKENIZER = RunSubwords(Tokenizer.train("characters", ["a trip to bcd"], 30))
CANDIDATES = SlotCandidates(Ontology({"trip": ("bad", "to b")}, ("a",)))
LINES = (("", "a trip"), ("trip to b or bad", "bad"), ("a", ""))
ENCODER = TurnEncoder(CANDIDATES, SubwordEncoder(TOKENIZER, 40), acts="words", history=2, max_length=20)
TURNS = ENCODER.encode([TrackedTurn(system, (), user, {}, (), {}) for system, user in LINES])


def tracker() -> EncoderSlotTracker:
    torch.manual_seed(0)
    bert = BERT(TOKENIZER.size, width=6, layers=2, heads=2, longest=40, types=1)
    names = len(CANDIDATES.names)
    return EncoderSlotTracker(TextEncoder(bert), names, hidden=5, layer_decay=0.5, head_rate=3.0).eval()


def test_a_batch_is_its_turns() -> None:
    model = tracker()
    with torch.no_grad():
        together = model(ENCODER.inputs(TURNS))
        alone = torch.cat([model(ENCODER.inputs([turn])) for turn in TURNS])
    torch.testing.assert_close(together, alone, rtol=1e-5, atol=1e-6)


def test_learning_rates_and_gradients() -> None:
    model = tracker()
    assert model.lr_multipliers["encoder.bert.layers.0"] == 0.5
    assert model.lr_multipliers["topic"] == 3.0
    model(ENCODER.inputs(TURNS)).square().sum().backward()
    assert all(p.grad is not None for name, p in model.named_parameters() if "types" not in name)

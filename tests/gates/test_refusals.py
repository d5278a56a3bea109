"""Every refusal of gates, the whole sentence: it names the argument, shows the values and says a way out."""

import re
from collections.abc import Callable

import pytest
import torch
from tests.for_each import for_each
from torch import nn

from regard import Need, gate
from regard.gates import (
    BAM,
    CBAM,
    CSRA,
    ControlledAttention,
    External,
    ExternalBlock,
    GatedCell,
    GatedHeads,
    GatedUnits,
    HeadsGate,
    MagnitudeSaliency,
    MultiHeadExternal,
    NonLocal,
    SimAM,
    SqueezeExcite,
)

C = 7
MAP, ROWS, SETS = torch.zeros(3, C, 5, 8), torch.zeros(2, 3), torch.zeros(2, 5, 3)

REFUSALS: list[tuple[Callable[[], object], str]] = [
    (lambda: gate("simam", C)([1.0]), "x must be a tensor, got list; wrap it in torch.as_tensor"),
    (lambda: gate("se", C)(MAP.long()), "x must be a floating tensor, got torch.int64; call x.float()"),
    (
        lambda: gate("se", C)(MAP[0, ..., 0]),
        "x must be a map (batch, channels, length) and up to three spatial axes for SqueezeExcite, got (7, 5); "
        "x.unsqueeze(0) adds a batch",
    ),
    (
        lambda: gate("se", C)(MAP[..., None, None]),
        "x must be a map (batch, channels, length) and up to three spatial axes for SqueezeExcite, got (3, 7, 5, "
        "8, 1, 1); join axes by x.flatten",
    ),
    (
        lambda: gate("cbam", C)(MAP[0]),
        "x must be a map (batch, channels, height, width) for CBAM, got (7, 5, 8); x.unsqueeze(0) adds a batch, "
        "or build CBAM with dims=1",
    ),
    (
        lambda: gate("se", C)(MAP.movedim(1, -1)),
        "x must have 7 channels for SqueezeExcite, got (3, 5, 8, 7); axis 1 counts them: build SqueezeExcite for "
        "5, or move the channels there with x.movedim(-1, 1)",
    ),
    (
        lambda: gate("simam", C)(MAP[:, :0]),
        "x must have at least one channel and one position for SimAM, got (3, 0, 5, 8); leave it out",
    ),
    (
        lambda: gate("se", C)(MAP.double()),
        "SqueezeExcite has parameters of torch.float32, x is torch.float64; cast one, as in gate.to(torch.float64)",
    ),
    (lambda: gate("se", C)(MAP.to("meta")), "SqueezeExcite is on cpu, x on meta; move one, as in gate.to('meta')"),
    (
        lambda: gate("se", C).attend(MAP, need=Need(map=True)),
        "need.map does not exist for SqueezeExcite; ask for Need(weights=True), or let regard.record keep a map",
    ),
    (lambda: gate("se", 0), "channels must be a whole number, 1 or more, for SqueezeExcite, got 0; try channels=8"),
    (lambda: gate("eca", 2.5), "channels must be a whole number, 1 or more, for ECA, got 2.5; try channels=8"),
    (
        lambda: gate("eca:kernel=2", 8),
        "kernel must be odd for ECA, got 2: an even one would change the size of the map; try kernel=3",
    ),
    (
        lambda: gate("simmam", 8),
        "unknown gate 'simmam'; did you mean 'simam'? known are: gap, se, eca, ",
    ),
    (
        lambda: gate("se:reductoin=4", 8),
        "unknown option of 'se:reductoin=4', 'reductoin'; did you mean 'reduction'? known are: reduction, hidden,"
        " bias, activation, normalize",
    ),
    (
        lambda: gate("se:reduction", 8),
        "options of a gate are option=value, got 'reduction' in 'se:reduction'; try reduction=VALUE",
    ),
    (lambda: gate("se:hidden=2:hidden=3", 8), "'se:hidden=2:hidden=3' gives hidden twice; give it once"),
    (lambda: gate("external:d=4", 8), "the gate 'external' takes no options, got 'external:d=4'; leave them out"),
    (
        lambda: gate("se:reduction=x", 8),
        "reduction of 'se:reduction=x': a whole number of at least 1, of at most 9 digits, is needed, got 'x'; try 4",
    ),
    (
        lambda: gate("eca:kernel=10000000001", 8),
        "kernel of 'eca:kernel=10000000001': a whole number of at least 1, of at most 9 digits, is needed, got"
        " '10000000001'; try 4",
    ),
    (lambda: gate("simam:lam=x", 8), "lam of 'simam:lam=x': a number is needed, got 'x'; try 0.1"),
    (
        lambda: gate("se:normalize=softmx", 8),
        "normalize of 'se:normalize=softmx': unknown normalizer 'softmx'; did you mean 'softmax'? known are: "
        "sigmoid, softmax, sparsemax, entmax, none",
    ),
    (
        lambda: gate("cbam:order=mean-maxx", 8),
        "order of 'cbam:order=mean-maxx': unknown value 'mean-maxx'; did you mean 'mean-max'? known are: "
        "max-mean, mean-max",
    ),
    (
        lambda: gate("channel:bias=maybe", 8),
        "bias of 'channel:bias=maybe': unknown value 'maybe'; known are: yes, no",
    ),
    (lambda: SimAM(0), "lam must be positive for SimAM, got 0; try lam=1"),
    (lambda: CBAM(8, dims=4), "dims must be 1, 2 or 3 for CBAM, got 4; images have 2, signals 1, volumes 3"),
    (lambda: BAM(8, combine="summ"), "unknown combine 'summ'; did you mean 'sum'? known are: sum, product"),
    (
        lambda: SqueezeExcite(8, activation="relu"),
        "activation must be a function of a tensor, got 'relu'; try nn.Identity()",
    ),
    (
        lambda: SqueezeExcite(8, normalize="softmax"),
        "normalize must be a Normalizer, got 'softmax'; write normalize=Softmax()",
    ),
    (
        lambda: ExternalBlock(8, nn.Identity()),
        "attention must be External or MultiHeadExternal, got Identity(); write attention=External(8)",
    ),
    (
        lambda: MultiHeadExternal(9, 2),
        "channels must split evenly over heads for MultiHeadExternal: 9 over 2 leaves 1; try heads=1",
    ),
    (
        lambda: External(8)(torch.zeros(2, 8, 3), mask=[True]),
        "mask must be a boolean tensor (2, 3), True where a position is real, got list; try mask > 0",
    ),
    (
        lambda: External(8)(torch.zeros(1, 8, 3), mask=torch.ones(1, 8, 3, dtype=torch.bool)),
        "mask must be a boolean tensor (1, 3), True where a position is real, got torch.bool (1, 8, 3); try mask > 0",
    ),
    (
        lambda: CSRA(8, 3, heads=3),
        "heads must be one of 1, 2, 4, 6, 8 for CSRA, got 3; for another number pass as many temperatures=",
    ),
    (lambda: CSRA(8, 3, heads=2, temperatures=[1.0]), "temperatures must be one per head: got 1 for 2; try heads=1"),
    (lambda: CSRA(8, 3, temperatures=[0.0]), "temperatures must be positive for CSRA, got 0.0; try temperatures=1"),
    (lambda: CSRA(8, 3, strength="much"), "strength must be a number for CSRA, got 'much'; try strength=1.0"),
    (
        lambda: MagnitudeSaliency(0.5),
        "power must be 1 or more for MagnitudeSaliency, got 0.5, which has no derivative at 0; try power=2",
    ),
    (
        lambda: NonLocal(8, attention=nn.Identity()),
        "attention must be an Attention, got Identity(); write attention=Attention(Dot(scale=1.0))",
    ),
    (lambda: HeadsGate(6, 4), "channels must split evenly over heads for HeadsGate: 6 over 4 leaves 2; try heads=3"),
    (
        lambda: GatedHeads(3, 4, 7)(SETS[None]),
        "x must be (batch, positions, width) for GatedHeads, got (1, 2, 5, 3); x.unsqueeze(1) makes one position",
    ),
    (
        lambda: GatedHeads(3, 4, 7)(SETS, mask=torch.ones(2, 5)),
        "mask must be a boolean tensor (2, 5), True where a position is real, got torch.float32 (2, 5); try mask > 0",
    ),
    (
        lambda: GatedCell(3, 4, 7)(SETS, GatedCell(3, 2, 7).initial_state(SETS)),
        "state must be of 2 samples and 28 wide, got (2, 14); pass the state this cell gave, or None to begin",
    ),
    (
        lambda: GatedCell(3, 4, 7).read(SETS),
        "sequence must be (batch, steps, positions, width) with a step or more, got (2, 5, 3); x.unsqueeze(2) "
        "makes one position per step",
    ),
    (
        lambda: GatedUnits(3, 5, 4)(torch.zeros(2, 4)),
        "x must be 3 wide for GatedUnits, got (2, 4); pass x with last axis 3 or build GatedUnits for width 4",
    ),
    (
        lambda: GatedUnits(3, 5, 4)(SETS),
        "x must be (batch, width) for GatedUnits, got (2, 5, 3); x.flatten(0, -2) joins the axes before the last",
    ),
    (
        lambda: ControlledAttention(3, 4)(SETS),
        "x must be (batch, width) for ControlledAttention, got (2, 5, 3); read runs over a sequence",
    ),
    (
        lambda: ControlledAttention(3, 4).read(ROWS),
        "x must be (batch, steps, width) for ControlledAttention, got (2, 3); x.unsqueeze(1) makes a sequence of "
        "one step",
    ),
    (
        lambda: ControlledAttention(3, 4).read(SETS[:, :0]),
        "sequence must have a step or more, got (2, 0, 3); leave it out",
    ),
    (
        lambda: ControlledAttention(3, 4)(ROWS, ControlledAttention(3, 2).initial_state(ROWS)),
        "state must be of 2 samples, 4 heads and 3 units, got (2, 2, 3); pass the state that this module "
        "returned, or None to begin",
    ),
    (
        lambda: ControlledAttention(3, 4, combine="sums"),
        "unknown combine 'sums'; did you mean 'sum'? known are: sum, product",
    ),
    (
        lambda: ControlledAttention(3, 4, update="inputs"),
        "unknown update 'inputs'; did you mean 'input'? known are: attended, input",
    ),
    (
        lambda: ControlledAttention(3, 4, select="softmax"),
        "select must be a Normalizer, got 'softmax'; write select=Softmax()",
    ),
]


@for_each(("act", "sentence"), REFUSALS, ids=[sentence for _, sentence in REFUSALS])
def test_a_refusal_is_a_whole_sentence(act: Callable[[], object], sentence: str) -> None:
    with pytest.raises((TypeError, ValueError), match=f"^{re.escape(sentence)}"):
        act()

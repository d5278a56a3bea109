"""The certificate: no map is called verified that is not the one that was used."""

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import regard

B, H, Q, D = 2, 3, 5, 12


def heads_apart() -> regard.MultiHead:
    """A layer whose heads are heard one by one."""
    each = [regard.Attention(regard.Additive(D // H, D // H, 7)) for _ in range(H)]
    return regard.MultiHead(D, H, attention=each)


def test_a_head_that_is_no_number_is_not_verified() -> None:
    for head in range(H):
        layer = heads_apart()
        with torch.no_grad():
            layer.value.bias[4 * head : 4 * head + 4] = torch.nan
        with torch.no_grad(), regard.record(layer) as tape:
            assert layer(torch.randn(B, Q, D)).isnan().all()
        (one,) = tape
        assert not one.verified


def test_one_parts_tolerance_does_not_excuse_another() -> None:
    from regard.attn.maps.attention_map import DenseMap
    from regard.recording.analysis.derived_maps import HeadStack
    from regard.recording.capture.recorder import _join

    def part(certificate: float | None, tolerance: float) -> regard.recording.RecordedMap:
        weights = DenseMap(torch.rand(B, 1, Q, Q))
        return regard.recording.RecordedMap("layer", "self", weights, certificate=certificate, tolerance=tolerance)

    for parts in ([part(1e-3, 1e-4), part(1e-7, 1e-2)], [part(1e-7, 1e-2), part(None, 1e-2)]):
        for order in (parts, parts[::-1]):
            assert not _join(order, HeadStack).verified
    joined = _join([part(1e-7, 1e-2), part(1e-5, 1e-4)], HeadStack)
    assert (joined.certificate, joined.tolerance) == (1e-5, 1e-4)


def test_heads_heard_one_by_one_are_chosen_too() -> None:
    layer, x = heads_apart(), torch.randn(B, Q, D)
    with torch.no_grad(), regard.record(layer) as whole:
        layer(x)
    with torch.no_grad(), regard.record(layer, heads=[2, -3]) as tape:
        layer(x)
    (one,) = tape
    assert one.heads == (2, 0)
    assert torch.equal(one.weights.dense(), whole[0].weights.dense()[:, [2, 0]])
    said = r"heads=\[99\] are not there: 'model' has heads 0 to 2|heads=\[99\] are not there: '' has heads 0 to 2"
    with pytest.raises(IndexError, match=said), regard.record(layer, heads=[99]):
        layer(x)


def test_a_call_that_failed_leaves_no_heads_behind() -> None:
    class Fails(regard.Normalizer):
        broken = True

        def weights(self, scores: Tensor, allowed: Tensor | None) -> Tensor:
            if Fails.broken:
                raise RuntimeError("on purpose")
            return torch.softmax(scores, -1)

    terms = (regard.Softmax(), Fails(), regard.Softmax())
    each = [regard.Attention(regard.Additive(D // H, D // H, 7), normalize=one) for one in terms]
    layer, x = regard.MultiHead(D, H, attention=each), torch.randn(B, Q, D)
    with regard.record(layer) as tape:
        with pytest.raises(RuntimeError, match="on purpose"):
            layer(x)
        Fails.broken = False
        layer(x)
    assert [one.shape for one in tape] == [(B, H, Q, Q)]


def test_weights_that_are_kept_are_no_longer_the_models() -> None:
    class Writes(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            w = torch.tanh(x @ x.mT).softmax(-1)
            out = w @ x
            w.zero_()
            return out

    model, x = Writes(), torch.randn(B, Q, D)
    with torch.no_grad(), regard.record(model, keep="weights") as tape:
        model(x)
    torch.testing.assert_close(tape[0].weights.dense(), torch.tanh(x @ x.mT).softmax(-1), rtol=0.0, atol=1e-6)


def test_a_frozen_layer_has_no_gradient_and_stops_nobody() -> None:
    class Two(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = regard.MultiHead(D, H), regard.MultiHead(D, H)

        def forward(self, x: Tensor) -> Tensor:
            return self.second(self.first(x))

    model = Two()
    model.first.requires_grad_(False)
    with regard.record(model, gradients=True) as tape:
        out = model(torch.randn(B, Q, D))
    out.sum().backward()
    assert tape[0].gradient is None
    assert tape[1].gradient.dense().abs().sum() > 0
    with pytest.raises(ValueError, match="relevance needs the gradient of every map, and 'first' has none"):
        tape.relevance()


@pytest.mark.parametrize("kind", [torch.float64, torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("sharp", [0.3, 1.0])
def test_a_wrong_map_over_many_keys_is_caught_in_every_type(kind: torch.dtype, sharp: float) -> None:
    from regard.attn.maps.attention_map import DenseMap
    from regard.recording.capture.certificate import certify

    torch.manual_seed(5)
    q, k, v = (torch.randn(1, 2, 512, 64).to(kind) for _ in range(3))
    q = q * sharp
    out = F.scaled_dot_product_attention(q, k, v)
    weights = torch.softmax(q.double() @ k.double().mT / 8.0, -1)
    sure = certify(DenseMap(weights), v, out)
    assert sure.certificate <= sure.tolerance
    flat = torch.full_like(weights, 1 / 512)
    for wrong in (flat, weights.flip(-1), weights.roll(1, -1), weights.roll(1, -2)):
        sure = certify(DenseMap(wrong), v, out)
        assert sure.certificate > sure.tolerance


def test_the_grid_of_an_image_is_not_that_of_a_text() -> None:
    class Both(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.cut, self.look = nn.Conv2d(3, 8, 2, 2), nn.MultiheadAttention(8, 2, batch_first=True)

        def forward(self, image: Tensor, text: Tensor, row: bool) -> Tensor:
            patches = self.cut(image)
            seen = patches.flatten(2).transpose(1, 2) if row else text
            return self.look(seen, seen, seen, need_weights=False)[0]

    model, image, text = Both().eval(), torch.rand(1, 3, 6, 6), torch.randn(1, 20, 8)
    with torch.no_grad(), regard.record(model) as tape:
        model(image, text, False)
        model(image, text, True)
        model.look(text[:, :9], text[:, :9], text[:, :9], need_weights=False)
    assert [one.grid for one in tape] == [None, (3, 3), None]


def test_the_grid_of_one_tower_is_not_that_of_the_other() -> None:
    class Sees(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.cut, self.look = nn.Conv2d(3, 8, 2, 2), nn.MultiheadAttention(8, 2, batch_first=True)

        def forward(self, image: Tensor) -> Tensor:
            seen = self.cut(image).flatten(2).mT
            return self.look(seen, seen, seen, need_weights=False)[0]

    class Towers(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.image, self.text = Sees(), nn.MultiheadAttention(8, 2, batch_first=True)

        def forward(self, image: Tensor, text: Tensor) -> Tensor:
            return self.image(image).sum() + self.text(text, text, text, need_weights=False)[0].sum()

    model = Towers().eval()
    with torch.no_grad(), regard.record(model) as tape:
        model(torch.rand(1, 3, 6, 6), torch.randn(1, 11, 8))
    assert [one.grid for one in tape] == [(3, 3), None]


def test_rows_of_a_decoder_that_goes_step_by_step() -> None:
    """They are chosen among all its steps, not in each of them."""
    from regard.models.seq2seq import Seq2Seq

    torch.manual_seed(0)
    model = Seq2Seq(11, 11, width=8, hidden=8).eval()
    source, target = torch.randint(4, 11, (2, 5)), torch.randint(4, 11, (2, 6))
    call = (source, torch.tensor([5, 4]), target)
    with regard.record(model) as whole:
        model(*call)
    for rows in ([2, 4], [0], slice(1, 6, 2)):
        with regard.record(model, rows=rows) as some:
            model(*call)
        torch.testing.assert_close(some[0].weights.dense(), whole[0].weights.dense()[:, rows])
        assert some[0].rows == tuple(range(6)[rows] if isinstance(rows, slice) else rows)
    with pytest.raises(
        IndexError, match=r"\(9, 12, None\) take none of the 6 steps of 'decoder.attention'; choose some of them"
    ):
        _run(model, call, slice(9, 12))
    with pytest.raises(IndexError, match=r"rows=\[6\] are not there: 'decoder.attention' has queries 0 to 5"):
        _run(model, call, [6])


def _run(model: torch.nn.Module, call: tuple[torch.Tensor, ...], rows: list[int] | slice) -> None:
    with regard.record(model, rows=rows):
        model(*call)

"""The certificate: no map is called verified that is not the one that was used."""

import torch


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
    from regard.parts.map import Kept
    from regard.tape.made import Heads
    from regard.tape.recorder import _joined

    def part(certificate: float | None, tolerance: float) -> regard.Recorded:
        weights = Kept(torch.rand(B, 1, Q, Q))
        return regard.Recorded("layer", "self", weights, certificate=certificate, tolerance=tolerance)

    for parts in ([part(1e-3, 1e-4), part(1e-7, 1e-2)], [part(1e-7, 1e-2), part(None, 1e-2)]):
        for order in (parts, parts[::-1]):
            assert not _joined(order, Heads).verified
    joined = _joined([part(1e-7, 1e-2), part(1e-5, 1e-4)], Heads)
    assert (joined.certificate, joined.tolerance) == (1e-5, 1e-4)

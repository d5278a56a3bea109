"""The Fréchet distance: scipy's, and 0 between equal sets."""

import numpy as np
import pytest
import torch

from regard.metrics.frechet import frechet_distance, moments


def test_the_distance_is_that_of_scipys_root() -> None:
    from scipy.linalg import sqrtm

    generator = torch.Generator().manual_seed(0)
    a, b = (torch.randn(9, 4, generator=generator, dtype=torch.float64) for _ in range(2))
    (one, left), (two, right) = ((t.mean(0), t.T.cov()) for t in (a, b))
    want = (one - two).square().sum() + (left + right).trace() - 2 * np.trace(sqrtm((left @ right).numpy())).real
    assert frechet_distance((one, left), (two, right)) == pytest.approx(float(want))
    assert frechet_distance(moments(a), moments(b)) == pytest.approx(float(want))
    assert frechet_distance(moments(a), moments(a)) == pytest.approx(0, abs=1e-9)


def test_moments() -> None:
    features = torch.randn(7, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    mean, covariance = moments(features)
    torch.testing.assert_close(mean, features.mean(0))
    torch.testing.assert_close(covariance, features.T.cov())
    assert not moments(features[:1])[1].any()

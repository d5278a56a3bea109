"""The hinge loss of generative adversarial networks."""

from torch import Tensor

from regard.common import checks


def hinge(real: Tensor, fake: Tensor) -> Tensor:  # "*b", "*b" -> "*b"
    """relu(1 − D(x)) + relu(1 + D(G(z))), the loss of the discriminator  (Lim & Ye 2017; Zhang et al. 2019, eq. 4).

    The generator minimises −D(G(z)).
    """
    if real.shape != fake.shape:
        raise ValueError(
            f"real {checks.shape(real)} and fake {checks.shape(fake)} must be scores of as many images; "
            "generate one per real image"
        )
    return (1 - real).relu() + (1 + fake).relu()

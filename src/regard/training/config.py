"""The hyper-parameters of a training. No torch here: the command line reads this file to print its help."""

from dataclasses import dataclass
from typing import Literal

from regard.common.options.checks import check_fields
from regard.common.options.fields import at_least, left_open, positive, resolve, share

# schedules that depend on the number of steps
PLANNED = ("cosine", "linear")
# the options that end a training
ENDS = ("steps", "epochs", "minutes")
PLATEAU_FACTOR, PLATEAU_PATIENCE = 0.5, 2
# far beyond any machine
MAX_THREADS = 65_536


@dataclass(frozen=True)
class TrainingConfig:
    """All hyper-parameters. At least one of steps, epochs and minutes is given; the first one reached ends training."""

    steps: int | None = at_least(1, example=10_000)
    """End after this many steps (updates of the weights)."""
    epochs: float | None = positive(example=10)
    """End after this many passes over the training data; each counts as many batches as the first epoch has."""
    minutes: float | None = positive(example=30)
    """End after this many minutes, validation included; a resumed run counts the minutes before as well. Validates
    at least every tenth of this time, unless validation takes long."""

    lr: float = positive(1e-3)
    """The peak of the learning rate."""
    schedule: Literal["constant", "inverse-sqrt", "cosine", "linear", "plateau"] = "inverse-sqrt"
    """The learning rate after the warm-up; cosine and linear end near zero. With minutes alone they decay over as many
    steps as the measured speed allows."""
    warmup: int = at_least(0, 400)
    """Steps over which the learning rate rises to its peak."""
    plateau_factor: float | None = left_open(PLATEAU_FACTOR, above=0, below=1)
    """With schedule plateau: multiply the learning rate by this when validation no longer improves."""
    plateau_patience: int | None = left_open(PLATEAU_PATIENCE, minimum=1)
    """With schedule plateau: validations without improvement before the learning rate is lowered."""
    betas: tuple[float, float] = share((0.9, 0.98))
    """AdamW's decay rates of the averages of gradients and of squared gradients."""
    weight_decay: float = at_least(0, 0.0)
    """AdamW's weight decay of matrices; vectors (biases, norms) do not decay."""
    clip: float | None = positive(1.0)
    """Scale gradients down to this global norm; None does not."""
    accumulate: int = at_least(1, 1)
    """Batches per step: their gradients are summed, as if they were one larger batch."""

    validate_every: int = at_least(1, 500)
    """Steps between validations; the end of training always validates, and minutes validate by time as well."""
    save_every: int = at_least(1, 500)
    """Steps between checkpoints; every validation saves one as well."""
    save_minutes: float | None = positive(example=10)
    """Minutes after which a checkpoint is saved as well, however few steps they had."""
    log_every: int = at_least(1, 50)
    """Steps between lines of progress."""
    patience: int | None = at_least(1, example=5)
    """End after this many validations in a row without improvement; None does not."""
    average: int = at_least(0, 0)
    """At the end average the weights of this many last validations, and keep them if they score better; 0 does not."""

    precision: Literal["float32", "bfloat16"] = "float32"
    """bfloat16 halves the bits of most operations; slow on a processor without units for it."""
    threads: int | None = at_least(1, maximum=MAX_THREADS, example=1)
    """Threads of the processor; None times 1, 2, 4, … up to all on a real batch and takes the fewest that are fast."""
    device: Literal["auto", "cpu", "cuda", "mps"] = "auto"
    """The device to train on; auto takes a GPU if there is one."""
    parallel: Literal["replicate", "shard"] = "replicate"
    """Under torchrun: every process holds the whole model (replicate), or a part of it (shard, FSDP2)."""
    retain_memory: bool = True
    """Keep freed memory in the process: faster on a CPU with glibc, whose malloc is set for the whole process."""
    tensorboard: bool = False
    """Write the metrics for TensorBoard as well."""

    def __post_init__(self) -> None:
        if all(getattr(self, name) is None for name in ENDS):
            raise ValueError("steps, epochs and minutes are all None, so training would never end; try steps=10000")
        if self.clip == float("inf"):
            object.__setattr__(self, "clip", None)
        check_fields(self)
        if self.schedule == "inverse-sqrt" and self.warmup == 0:
            raise ValueError(
                "warmup=0 with schedule='inverse-sqrt' would lower the learning rate from the first step on; "
                "give warmup=400, or take schedule='constant'"
            )
        if self.schedule != "plateau":
            for name in ("plateau_factor", "plateau_patience"):
                if getattr(self, name) is not None:
                    raise ValueError(
                        f"{name}={getattr(self, name)} has no effect with schedule {self.schedule!r}; "
                        f"take schedule='plateau' or leave {name} out"
                    )
        else:
            resolve(self, {"plateau_factor": PLATEAU_FACTOR, "plateau_patience": PLATEAU_PATIENCE})


def lasting(minutes: float) -> str:
    """A number of minutes in words: "1 minute", "0.5 minutes"."""
    return f"{minutes:g} minute{'' if minutes == 1 else 's'}"

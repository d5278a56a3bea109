"""The Triton kernels compiled for GPUs that this machine need not have: registers, spills, shared memory, instructions.

A variant is a kernel with the tile that regard ships for one width and one kind of numbers. Pointers are aligned, as
the hosts of the kernels make them. There is a mask, and sparse weights are those of entmax 1.5, by default.
"""

import re
import subprocess
import tempfile
from collections.abc import Iterator
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

from regard.kernels.triton import configs

# what a program may use on every target; some GPUs of capability 8 have no more
MOST_SHARED = 99 * 1024
CACHE = Path(__file__).parents[2] / "build" / "triton"

# arguments that hold numbers of the kind of the call; the other tensors are float32
_OF_KIND = {"sparse": ("Q", "K", "V", "OUT", "GRAD", "GRAD_Q", "GRAD_K", "GRAD_V"), "simam": ("X", "GRAD", "OUT")}


class Variant(NamedTuple):
    """A kernel as it is shipped for one kind of numbers and one padded width; SimAM has no width."""

    kernel: str  # "sparse.forward"
    kind: configs.Kind
    width: int = 0

    @property
    def tile(self) -> configs.Tile | None:
        return configs.TILES[self.kernel][self.kind][self.width] if self.width else None

    def multiplies(self) -> bool:
        """Whether tensor cores have something to multiply."""
        return self.width > 0 and not self.kernel.startswith("additive.backward")


class Facts(NamedTuple):
    """What the compiler says about a variant on one target."""

    registers: int  # of a thread
    spilled: int  # bytes of a thread in local memory, and registers that go there
    shared: int  # bytes of a program
    products: int  # instructions of tensor cores
    reciprocals: int  # approximate divisions, to 2 units in the last place
    exact_divisions: int
    local_loads: int


def is_installed() -> bool:
    """Whether there is a Triton to compile with."""
    return find_spec("triton") is not None


def variants() -> Iterator[Variant]:
    """All that are shipped."""
    for kernel, kinds in configs.TILES.items():
        yield from (Variant(kernel, kind, width) for kind, tiles in kinds.items() for width in tiles)
    for kernel in ("simam.forward", "simam.backward"):
        yield from (Variant(kernel, "float32"), Variant(kernel, "half"))


def compiled(variant: Variant, target: str, has_mask: bool = True, squared: bool = True) -> Any:
    """The kernel of Triton, compiled for the target."""
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    family, part = variant.kernel.split(".")
    function = getattr(import_module(f"regard.kernels.triton.{family}_kernels"), part)
    constants, warps = _constants(variant, target, has_mask, squared)
    names = function.arg_names
    signature = {name: "constexpr" if name in constants else _type(name, family, variant.kind) for name in names}
    source = ASTSource(
        fn=function,
        signature=signature,
        constexprs={(names.index(name),): value for name, value in constants.items() if name in names},
        attrs={(n,): [["tt.divisibility", 16]] for n, name in enumerate(names) if _is_aligned(name, signature)},
    )
    device = GPUTarget("hip", target, 64) if target.startswith("gfx") else GPUTarget("cuda", int(target[3:]), 32)
    with triton.knobs.cache.scope():
        triton.knobs.cache.dir = str(CACHE)
        options = {"num_warps": warps, "num_stages": 1, "enable_fp_fusion": True}
        return triton.compile(source, target=device, options=options)


def facts(variant: Variant, target: str, has_mask: bool = True, squared: bool = True) -> Facts:
    """What the compiler says, by its assembly and, for NVIDIA, by cuobjdump."""
    kernel = compiled(variant, target, has_mask, squared)
    if target.startswith("gfx"):
        text = kernel.asm["amdgcn"]
        numbers = {name: int(number) for name, number in re.findall(r"^\s*\.(\w+):\s+(\d+)\s*$", text, re.MULTILINE)}
        spilled = sum(numbers[f"{name}_spill_count"] for name in ("vgpr", "sgpr"))
        registers, spilled = numbers["vgpr_count"], spilled + numbers["private_segment_fixed_size"]
        return Facts(registers, spilled, kernel.metadata.shared, text.count("v_mfma"), text.count("v_rcp"), 0, 0)
    text, usage = kernel.asm["ptx"], _usage(kernel.asm["cubin"])
    products = len(re.findall(r"^\s*(?:wgmma\.)?mma[._]\S*", text, re.MULTILINE))
    local = text.count("ld.local") + text.count("st.local")
    divisions = [text.count(f"div.{kind}.f32") for kind in ("full", "rn")]
    return Facts(usage["REG"], usage["STACK"] + usage["LOCAL"], kernel.metadata.shared, products, *divisions, local)


def _usage(cubin: bytes) -> dict[str, int]:
    """Registers, stack and local memory of the one kernel in a binary."""
    import triton

    program = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "cuobjdump"
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        run = subprocess.run([program, "--dump-resource-usage", file.name], capture_output=True, text=True, check=True)
    return {name: int(number) for name, number in re.findall(r"(REG|STACK|LOCAL):(\d+)", run.stdout)}


def _type(name: str, family: str, kind: configs.Kind) -> str:
    """The type of an argument, by its name."""
    match name:
        case "ALLOWED":
            return "*u8"
        case "COUNTS" | "IN_RANGE":
            return "*i32"
        case "scale" | "lam":
            return "fp32"
        case "mask_n" | "mask_q":
            return "i64"
    if not name.isupper():
        return "i32"
    return "*bf16" if kind == "half" and name in _OF_KIND.get(family, ()) else "*fp32"


def _is_aligned(name: str, signature: dict[str, str]) -> bool:
    return signature[name].startswith("*") and name != "ALLOWED"


def _constants(variant: Variant, target: str, has_mask: bool, squared: bool) -> tuple[dict[str, Any], int]:
    """The constants and the warps of a launch."""
    tile = variant.tile
    if tile is None:
        return {"BLOCK": configs.SIMAM_BLOCK}, configs.SIMAM_WARPS
    constants: dict[str, Any] = {"HAS_MASK": has_mask, "VALUE": variant.width}
    if variant.kernel.startswith("additive.backward"):
        return constants | {"HIDDEN": variant.width, "TILE": max(tile.queries, tile.keys)}, tile.warps
    precision = configs.PRECISION[target][variant.kind]
    constants |= {"TILE_Q": tile.queries, "TILE_K": tile.keys, "PRECISION": precision}
    if variant.kernel.startswith("sparse"):
        constants |= {"WIDTH": variant.width, "SQUARED": squared}
    if variant.kernel == "sparse.threshold":
        del constants["VALUE"]
    return constants, tile.warps

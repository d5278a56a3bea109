"""Latent: multi-head attention whose keys and values are made of one short vector per token."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.attn import observer
from regard.attn.base import AttentionModule
from regard.attn.call import Attended, AttentionInputs
from regard.attn.call_builder import check_positions
from regard.attn.functional import set_projected_rows_nan
from regard.attn.kv_cache import KVCache, check_cache
from regard.attn.layer import Attention
from regard.attn.mechanisms.explicit_weights import no_values
from regard.attn.multihead import over_heads
from regard.attn.nonfinite import hide_nonfinite_inputs
from regard.attn.terms.bias import is_score_mask
from regard.attn.terms.mask import Mask
from regard.attn.terms.position import Positions, check_pair
from regard.attn.terms.rotary import Rotary, token_positions
from regard.attn.terms.score import Dot
from regard.common import checks
from regard.kernels.dispatch import is_autocasting, is_known

_FORMS = ("absorbed", "expanded")


class _RMSNorm(nn.RMSNorm):
    """Its weight takes the type of x, which autocast may have changed."""

    def forward(self, x: Tensor) -> Tensor:
        return F.rms_norm(x, self.normalized_shape, self.weight.to(x.dtype), self.eps)


class Latent(AttentionModule):
    """[head₁; …; head_h] W_O, keys [W_UK c; rope(W_KR x)], values W_UV c, c = rms(W_DKV x)  (DeepSeek-AI 2024, MLA).

    The latent c of a token is `latent_dim` wide, its rotated key, which all heads share, `rotated_dim`: a cache holds
    these alone. A head has queries of width head_dim + rotated_dim; with `query_latent_dim` they are made of a normed
    latent, too. "expanded", keys and values are formed for every head; "absorbed", W_UK multiplies the queries and W_UV
    the output, and all heads attend to the latents. Both are one function; `form=None` takes that of fewer products.

        heads(x), heads(x, source), heads.step(x, past)   as in MultiHead; `past` is a KVCache of latents
    """

    reads_rows = False

    def __init__(
        self,
        dim: int,
        heads: int,
        *,
        latent_dim: int,
        head_dim: int,
        rotated_dim: int,
        head_value_dim: int | None = None,
        query_latent_dim: int | None = None,
        key_dim: int | None = None,
        rotate: Rotary | None = None,
        attention: Attention | None = None,
        form: str | None = None,
        bias: bool = False,
        eps: float = 1e-6,
    ) -> None:
        super().__init__()
        head_value_dim = head_dim if head_value_dim is None else head_value_dim
        key_dim = dim if key_dim is None else key_dim
        checks.positive_ints("Latent", dim=dim, heads=heads, latent_dim=latent_dim, key_dim=key_dim)
        checks.positive_ints("Latent", head_dim=head_dim, rotated_dim=rotated_dim, head_value_dim=head_value_dim)
        if form is not None:
            checks.known("form", form, _FORMS)
        rotate = Rotary(rotated_dim, pairs="neighbours") if rotate is None else rotate
        checks.instance_of("rotate", rotate, Rotary, 'Rotary(rotated_dim, pairs="neighbours")')
        if rotate.dim != rotated_dim:
            raise ValueError(
                f"rotate must turn the {rotated_dim} rotated channels of Latent, got {rotate!r}; "
                f'try Rotary({rotated_dim}, pairs="neighbours")'
            )
        if attention is not None:
            checks.instance_of("attention", attention, Attention, "Attention(Dot(scale=0.1))")
        self.heads, self.latent_dim, self.rotated_dim, self.form = heads, latent_dim, rotated_dim, form
        self.head_dim, self.head_value_dim = head_dim, head_value_dim
        width = heads * (head_dim + rotated_dim)
        if query_latent_dim is None:
            self.query: nn.Module = nn.Linear(dim, width, bias=False)
        else:
            checks.positive_ints("Latent", query_latent_dim=query_latent_dim)
            self.query = nn.Sequential(
                nn.Linear(dim, query_latent_dim, bias=bias),
                _RMSNorm(query_latent_dim, eps),
                nn.Linear(query_latent_dim, width, bias=False),
            )
        self.key = nn.Linear(key_dim, latent_dim + rotated_dim, bias=bias)
        self.norm = _RMSNorm(latent_dim, eps)
        self.key_up = nn.Linear(latent_dim, heads * head_dim, bias=False)
        self.value_up = nn.Linear(latent_dim, heads * head_value_dim, bias=False)
        self.out = nn.Linear(heads * head_value_dim, dim, bias=bias)
        self.dim, self.rotate = dim, rotate
        self.attention = Attention() if attention is None else attention

    def project_kv(
        self, k: Tensor, v: Tensor | None = None, *, past: KVCache | None = None, positions: Tensor | None = None
    ) -> KVCache:  # "*b k e"
        """The rotated keys "*b 1 k r" and, as values, the normed latents "*b 1 k c" of k, appended to `past`."""
        no_values(v, "Latent")
        checks.floating("k", k)
        checks.width("k", k, self.key.in_features, self)
        check_cache(past)
        start = 0 if past is None else len(past)
        latents, keys = self.key(k).split((self.latent_dim, self.rotated_dim), dim=-1)
        keys = self.rotate(keys.unsqueeze(-3), positions, start=start)
        latents = self.norm(latents).unsqueeze(-3)
        return KVCache(keys, latents, positions) if past is None else past.extend(keys, latents, positions)

    def step(
        self,
        x: Tensor,
        past: KVCache | None = None,
        *,
        mask: Mask | Tensor | None = None,
        positions: Positions | None = None,
    ) -> tuple[Tensor, KVCache]:  # "*b n d" -> "*b n d"
        """Self-attention of x to `past` and itself, and the longer cache; `positions`: those of x, and of all keys."""
        cache = self.step_cache(x, past, mask, positions)
        return self(x, cache, mask=mask, positions=positions), cache

    def step_cache(
        self, x: Tensor, past: KVCache | None, mask: Mask | Tensor | None, positions: Positions | None
    ) -> KVCache:
        """`past` with the latents of x, as a step attends to them."""
        check_pair(positions)
        return self.project_kv(x, past=past, positions=None if positions is None else positions[0])

    def attend_inputs(self, inputs: AttentionInputs) -> Attended:  # weights are "*b h q k"
        attention_observer = observer.observer_or_trace()
        if attention_observer is None or isinstance(attention_observer, observer.Trace):
            return self._attend(inputs)
        with attention_observer.muted():  # the inner attention is observed by itself
            return self._attend(inputs)

    def explain_inputs(self, inputs: AttentionInputs) -> str:
        heads_inputs, absorbed = self._inputs_of_heads(inputs)
        form = "the latents are keys and values of all heads" if absorbed else "keys and values are formed per head"
        return f"Latent, {_FORMS[not absorbed]}: {form}\n{self.attention.explain_inputs(heads_inputs)}"

    def _attend(self, inputs: AttentionInputs) -> Attended:
        nan_rows, mask = None, over_heads(inputs.mask, inputs.q)
        mask = self.attention.combine_masks(mask > -torch.inf if is_score_mask(mask) else mask)
        if mask is not None and not isinstance(inputs.k, KVCache):
            self._check(inputs)
            q, k, _, nan_rows = hide_nonfinite_inputs(
                inputs.q, inputs.k, None, mask, token_positions(inputs.positions), self.heads
            )
            inputs = inputs._replace(q=q, k=k)
        heads_inputs, absorbed = self._inputs_of_heads(inputs)
        result = self.attention.attend_inputs(heads_inputs)
        out = result.out  # "*b h q c" or "*b h q v"
        if absorbed:
            out = out @ self._up(self.value_up, out.dtype).mT
        out = self.out(out.transpose(-2, -3).flatten(-2))
        return set_projected_rows_nan(result, out, nan_rows)

    def _check(self, inputs: AttentionInputs) -> None:
        q, k = inputs.q, inputs.k
        no_values(inputs.v, "Latent")
        checks.floating("q", q)
        checks.width("q", q, self.dim, self)
        if not is_autocasting(q):
            checks.same_dtype_and_device(self, q, self.out.weight)
        if isinstance(k, KVCache):
            if (k.values.shape[-1], k.keys.shape[-1]) != (self.latent_dim, self.rotated_dim):
                raise ValueError(
                    f"k must be a cache of {self.rotated_dim} rotated and {self.latent_dim} latent numbers, got {k!r}; "
                    "pass what project_kv or step of this layer returned"
                )
        else:
            checks.floating("k", k)
            checks.width("k", k, self.key.in_features, self)
        if inputs.positions is not None:
            check_pair(inputs.positions)
            tokens = token_positions(inputs.positions)
            keys = len(k) if isinstance(k, KVCache) else k.shape[-2]
            if tokens is not None:
                check_positions(tokens, tuple(q.shape[:-2]), q.shape[-2], keys, q.device)

    def _inputs_of_heads(self, inputs: AttentionInputs) -> tuple[AttentionInputs, bool]:
        """The arguments of the attention of all heads, and whether they are absorbed."""
        q, k, _, mask, positions, need, generator = inputs
        self._check(inputs)
        i, j = (None, None) if positions is None else positions
        memory = k if isinstance(k, KVCache) else self.project_kv(k, positions=j)
        start = memory.values.shape[-2] - q.shape[-2]  # len() would fix a number that torch exports as dynamic
        if i is None and memory.positions is not None:
            i = memory.positions[..., start:]
        queries = self.query(q).unflatten(-1, (self.heads, -1)).transpose(-2, -3)  # "*b h q n+r"
        plain, rotated = queries.split((self.head_dim, self.rotated_dim), dim=-1)
        rotated = self.rotate(rotated, i, start=start)
        absorbed = self._is_absorbed(q.shape[-2])
        latents = memory.values  # "*b 1 k c"
        if absorbed:
            plain = plain @ self._up(self.key_up, plain.dtype)
            keys, values = torch.cat([latents, memory.keys], dim=-1), latents
            queries = torch.cat([plain, rotated], dim=-1)
            if self.attention.score.scale is None:  # it would divide by the root of the width of latents
                queries = queries * (queries.shape[-1] / (self.head_dim + self.rotated_dim)) ** 0.5
        else:
            flat = latents.squeeze(-3)
            keys, values = (self._per_head(linear(flat)) for linear in (self.key_up, self.value_up))
            keys = torch.cat([keys, memory.keys.expand(*keys.shape[:-1], -1)], dim=-1)
            queries = torch.cat([plain, rotated], dim=-1)
        tokens = token_positions(positions)
        if tokens is None and memory.positions is not None:
            tokens = (memory.positions[..., start:], memory.positions)
        return AttentionInputs(queries, keys, values, over_heads(mask, q), tokens, need, generator), absorbed

    def _is_absorbed(self, queries: int) -> bool:
        """Whether the form is absorbed: chosen, or the one of fewer products per key and head."""
        is_plain = all(type(up) is nn.Linear and not up._forward_hooks for up in (self.key_up, self.value_up))
        if type(self.attention.score) is not Dot or not is_plain:
            if self.form == "absorbed":
                raise ValueError(
                    "form='absorbed' needs plain linear layers and the score Dot, got "
                    f"{self.key_up!r}, {self.value_up!r} and {self.attention.score!r}; leave form out"
                )
            return False
        if self.form is not None:
            return self.form == "absorbed"
        made = self.head_dim + self.head_value_dim
        return is_known(queries * (2 * self.latent_dim - made) < self.latent_dim * made)

    def _per_head(self, t: Tensor) -> Tensor:  # "*b k h·d" -> "*b h k d"
        return t.unflatten(-1, (self.heads, -1)).transpose(-2, -3)

    def _up(self, linear: nn.Module, dtype: torch.dtype) -> Tensor:  # -> "h d c"
        weight: Tensor = linear.weight  # type: ignore[assignment]
        return weight.unflatten(0, (self.heads, -1)).to(dtype)

    def __repr__(self) -> str:
        sizes = f"latent_dim={self.latent_dim}, head_dim={self.head_dim}, rotated_dim={self.rotated_dim}"
        return f"Latent({self.dim}, {self.heads}, {sizes})"

"""A folder in transformers' layout: config.json and weights, read without running any code and written atomically."""

import json
import math
import pickle
import re
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from regard.common import atomic_files, safetensors_files

CONFIG, GENERATION = "config.json", "generation_config.json"
SAFETENSORS, PICKLE = "model.safetensors", "pytorch_model.bin"
_POINTER = b"version https://git-lfs.github.com/spec/"


@dataclass(frozen=True)
class CheckpointConfig:
    """config.json of a folder, whose entries are checked when they are read."""

    folder: Path
    values: Mapping[str, Any]
    file: str = CONFIG  # the file that errors name

    def integer(self, key: str, default: int | None = None) -> int:
        value = self._value(key, default)
        if isinstance(value, bool) or not isinstance(value, int) or value < 0:
            raise self._wrong(key, value, "a whole number")
        return value

    def number(self, key: str, default: float | None = None) -> float:
        value = self._value(key, default)
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise self._wrong(key, value, "a number")
        try:
            number = float(value)
        except OverflowError:
            number = math.inf
        if not math.isfinite(number):
            raise self._wrong(key, number, "a finite number")
        return number

    def numbers(self, key: str) -> tuple[float, ...]:
        values = self._value(key, None)
        if not isinstance(values, list):
            raise self._wrong(key, values, "a list of numbers")
        return tuple(CheckpointConfig(self.folder, {key: value}, self.file).number(key) for value in values)

    def positive(self, key: str, default: float | None = None) -> float:
        value = self.number(key, default)
        if not value > 0:
            raise self._wrong(key, value, "a positive number")
        return value

    def epsilon(self, key: str, default: float) -> float:
        """The constant that a norm adds to a variance."""
        value = self.number(key, default)
        if value < 0:
            raise self._wrong(key, value, "0 or more")
        return value

    def flag(self, key: str, default: bool) -> bool:
        value = self._value(key, default)
        if not isinstance(value, bool):
            raise self._wrong(key, value, "true or false")
        return value

    def text(self, key: str, default: str | None = None) -> str:
        value = self._value(key, default)
        if not isinstance(value, str):
            raise self._wrong(key, value, "a text")
        return value

    def refuse(self, **supported: object) -> None:
        """Raises if an entry differs from the only value that is supported; a missing or null entry has it."""
        for key, expected in supported.items():
            value = self.values.get(key)
            if value is not None and value != expected:
                raise ValueError(
                    f"{self.folder / CONFIG} has {key}={value!r}, and regard supports {key}={expected!r} only; "
                    "take another checkpoint"
                )

    def refuse_quantized(self) -> None:
        """Raises if the config describes quantized weights, whose scales would be left out."""
        for key in ("quantization_config", "compression_config"):
            if self.values.get(key) is not None:
                raise ValueError(
                    f"{self.folder / CONFIG} has a {key}, and regard reads weights that are not quantized; "
                    "take the checkpoint that these weights were made from"
                )

    def _value(self, key: str, default: Any) -> Any:
        value = self.values.get(key)
        if value is None:
            value = default
        if value is None:
            raise ValueError(
                f"{self.folder / self.file} has no entry {key!r}; save the model again with transformers' "
                "save_pretrained"
            )
        return value

    def _wrong(self, key: str, value: object, kind: str) -> ValueError:
        return ValueError(f"{key} of {self.folder / self.file} must be {kind}, got {value!r}; correct the file")


def read_config(folder: Path) -> CheckpointConfig:
    """The config.json of a folder."""
    if not folder.is_dir():
        raise FileNotFoundError(f"there is no folder {folder}; name one that holds {CONFIG} and weights")
    path = folder / CONFIG
    if not path.exists():
        raise FileNotFoundError(
            f"{folder} holds no {CONFIG}, so no model in transformers' layout; name a folder made by save_pretrained"
        )
    return CheckpointConfig(folder, read_json(path))


def read_generation_config(config: CheckpointConfig) -> CheckpointConfig:
    """The entries of generation_config.json, which newer folders have, and behind them those of config.json."""
    path = config.folder / GENERATION
    values = read_json(path) if path.exists() else {}
    present = {key: value for key, value in values.items() if value is not None}
    return CheckpointConfig(config.folder, {**config.values, **present})


def read_json(path: Path) -> dict[str, Any]:
    """The JSON object of a file."""
    refuse_pointer(path)
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} is no JSON ({error}); restore the file") from error
    if not isinstance(values, dict):
        raise ValueError(f"{path} must hold a JSON object, got a {type(values).__name__}; restore the file")
    return values


def read_tensors(folder: Path) -> dict[str, Tensor]:
    """All tensors of a folder: of one file or several with an index, safetensors before pickles."""
    for name in (SAFETENSORS, PICKLE):
        if (folder / name).exists():
            return _read_file(folder / name)
        index = folder / f"{name}.index.json"
        if index.exists():
            return _read_parts(index)
    raise FileNotFoundError(
        f"{folder} holds no weights: neither {SAFETENSORS} nor {PICKLE}, nor their index; "
        "save the model there with save_pretrained"
    )


def _read_parts(index: Path) -> dict[str, Tensor]:
    parts = read_json(index).get("weight_map")
    if not isinstance(parts, dict):
        raise ValueError(f"{index} has no weight_map, which names the file of each tensor; restore the file")
    tensors: dict[str, Tensor] = {}
    for name in sorted({str(part) for part in parts.values()}):
        if Path(name).name != name or not (index.parent / name).is_file():
            raise ValueError(f"{index} names the file {name!r}, which is not in its folder; restore all parts")
        tensors |= _read_file(index.parent / name)
    return tensors


def refuse_pointer(path: Path) -> None:
    """Raises if a file is the pointer that Git LFS leaves where the content was not fetched."""
    if path.exists() and not path.is_file():
        # reading a named pipe would wait for its writer
        raise ValueError(f"{path} is no file; restore it")
    with open(path, "rb") as file:
        is_pointer = file.read(len(_POINTER)) == _POINTER
    if is_pointer:
        raise ValueError(
            f"{path} is a pointer of Git LFS instead of the file itself; run `git lfs pull` where it was cloned"
        )


def _read_file(path: Path) -> dict[str, Tensor]:
    refuse_pointer(path)
    if path.suffix == ".safetensors":
        return safetensors_files.read_tensors(path, "checkpoint")
    try:
        with warnings.catch_warnings():
            # about pickles of a protocol that torch does not write: what it cannot read is an error
            warnings.simplefilter("ignore", UserWarning)
            values = torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        refused = re.search(r"GLOBAL ([\w.]+)", str(error))
        content = f"the Python object {refused[1]}" if refused else "more than tensors"
        raise ValueError(
            f"{path} holds {content}, and unpickling it could run code; "
            "load it where you trust it, and save its tensors as safetensors with save_pretrained"
        ) from error
    except Exception as error:  # torch raises many kinds for damaged files
        reason = str(error).partition("\n")[0]
        raise ValueError(f"{path} is damaged or no checkpoint of torch ({reason!r}); restore it") from error
    if not isinstance(values, dict) or not all(
        isinstance(name, str) and isinstance(value, Tensor) for name, value in values.items()
    ):
        raise ValueError(f"{path} must hold a dict of tensors by name; save model.state_dict() there")
    for name, tensor in values.items():
        _check_stored(name, tensor, path)
    return values


def _check_stored(name: str, tensor: Tensor, path: Path) -> None:
    """Raises unless every number of the tensor is in the file: none is sparse, without data, or repeated by strides."""
    is_plain = tensor.layout is torch.strided and tensor.device.type == "cpu" and not tensor.is_quantized
    if not is_plain or tensor.numel() * tensor.itemsize > tensor.untyped_storage().nbytes():
        raise ValueError(
            f"tensor {name!r} of {path} is sparse, quantized or without its numbers; save it as tensor.contiguous()"
        )


def write_folder(folder: Path, config: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> None:
    """Writes weights and config.json; the config comes last, so that a folder with it is complete."""
    atomic_files.make_folder(folder)
    whole = {name: t.detach().cpu().contiguous() for name, t in sorted(tensors.items())}
    atomic_files.write_atomically(folder / SAFETENSORS, safetensors_files.encode(whole, {"format": "pt"}))
    text = json.dumps(dict(config), indent=2, sort_keys=True) + "\n"
    atomic_files.write_atomically(folder / CONFIG, [text.encode()])

"""A folder that transformers saved: its files, and how it is loaded safely."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

CONFIG = "config.json"
IMAGE_PROCESSOR = "preprocessor_config.json"
# one of these is the vocabulary of a tokenizer
_TOKENIZERS = ("tokenizer.json", "vocab.txt", "vocab.json", "*.model", "tekken.json")
# arguments of every from_pretrained: no code of the folder is run, nothing is fetched from a network
SAFE_LOADING: dict[str, Any] = {"local_files_only": True, "trust_remote_code": False}


def has_tokenizer(folder: Path) -> bool:
    """Whether the folder holds the vocabulary of a tokenizer."""
    return any(path for name in _TOKENIZERS for path in folder.glob(name))


def is_image_model(folder: Path) -> bool:
    """Whether the model of the folder reads images and no text."""
    return (folder / IMAGE_PROCESSOR).exists() and not has_tokenizer(folder)


def import_transformers(folder: Path) -> Any:
    """The transformers library, silenced, once the folder is known to hold a model whose weights are no pickle."""
    if not folder.is_dir():
        raise FileNotFoundError(f"there is no folder {folder}; name one that holds a model that transformers saved")
    if not (folder / CONFIG).exists():
        raise FileNotFoundError(f"{folder} holds no {CONFIG}, so no model that transformers saved; name another one")
    try:
        import transformers
    except ImportError as error:
        raise ImportError(
            f"{folder} holds a model of transformers, which must be installed: pip install transformers"
        ) from error
    if not any(folder.glob("*.safetensors")):
        pickles = sorted(path.name for path in folder.iterdir() if path.suffix in (".bin", ".pt", ".pth", ".ckpt"))
        weights = f"only {pickles[0]}, a pickle, which could run code" if pickles else "none"
        raise ValueError(f"{folder} must hold weights in .safetensors, got {weights}; save it with save_pretrained")
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    return transformers


@contextmanager
def loading_errors(folder: Path, preprocessor: str) -> Iterator[None]:
    """Turns any error of transformers into a ValueError of one sentence: files of the folder may hold anything.

    `preprocessor` is the "tokenizer" or "image processor" that belongs beside the model.
    """
    try:
        yield
    except Exception as error:
        line = str(error).strip().partition("\n")[0] or type(error).__name__
        raise ValueError(
            f"transformers cannot load {folder} ({line}); "
            f"save the model and its {preprocessor} there with save_pretrained"
        ) from error

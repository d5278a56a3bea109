"""A model in a folder, run on a text or a picture while it is recorded: of transformers, or of a training."""

import contextlib
import inspect
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from regard.cli import watching
from regard.recording.record import record
from regard.recording.recording import Recording
from regard.viz.alignment.alignment import Alignment

# what transformers calls the description of a model
CONFIG = "config.json"
# one of these is the vocabulary of a tokenizer
_TOKENIZERS = ("tokenizer.json", "vocab.txt", "vocab.json", "*.model", "tekken.json")
# no code of the folder is run, nothing is unpickled, nothing is fetched
_SAFELY: dict[str, Any] = {"local_files_only": True, "trust_remote_code": False}
# tokens that are generated at most, by a model that translates
_TOKENS = 128


@dataclass(frozen=True, eq=False)
class Heard:
    """What was recorded; of a model that translates also what it said, and what each piece of that looked at; of one
    that looks at a picture also that, "h w 3"."""

    recording: Recording
    said: str | None = None
    alignment: Alignment | None = None
    image: Tensor | None = None


def listen(folder: Path, text: str | None, layers: Sequence[str], weights: str | None) -> Heard:
    """The model of the folder reads the text, or looks at the picture of that name; None is the first pair that a
    translator's run held out."""
    from regard.training.run_folder import RECORD

    if not folder.is_dir():
        raise FileNotFoundError(f"there is no folder {folder}; name one that holds a model, or a training")
    if (folder / RECORD).exists():
        from regard.cli.loading import recorded
        from regard.cli.sights import SIGHTS

        kind = recorded(folder).kind
        if kind not in ("Translate", *SIGHTS):
            raise ValueError(f"{folder} is a run of {kind}, which reads neither a text nor a picture; name another one")
        if kind in SIGHTS:
            path = watching.path_of(folder, text)
            heard = _seen(watching.run(folder, path, layers, weights or "best", taped))
        else:
            heard = _run(folder, text, layers, weights or "best")
    elif not (folder / CONFIG).exists():
        raise FileNotFoundError(
            f"{folder} holds neither {CONFIG}, a model that transformers saved, nor {RECORD}, a training; name another"
        )
    elif weights is not None:
        raise ValueError(f"--weights {weights} is for the folder of a training, and {folder} is not one; leave it out")
    elif _looks(folder):
        _transformers(folder)
        heard = _seen(watching.pretrained(folder, watching.path_of(folder, text), layers, taped, _SAFELY))
    elif text is None:
        raise ValueError(f"{folder} holds a model of transformers, which has no text of its own; give one")
    else:
        heard = _pretrained(folder, text, layers)
    if not len(heard.recording):
        some = f"none of {', '.join(layers)}" if layers else "nothing"
        raise ValueError(f"{some} in {folder} attended, so there is nothing to see; name another one")
    return heard


def _seen(watched: watching.Watched) -> Heard:
    return Heard(watched.recording, watched.said, image=watched.image)


def _looks(folder: Path) -> bool:
    """Does the model look at pictures, and at nothing else?"""
    return (folder / watching.PROCESSOR).exists() and not _has_tokenizer(folder)


def _has_tokenizer(folder: Path) -> bool:
    return any(path for name in _TOKENIZERS for path in folder.glob(name))


@contextlib.contextmanager
def taped(model: torch.nn.Module, layers: Sequence[str]) -> Iterator[Recording]:
    """Records what runs inside, of these modules or of all."""
    try:
        with torch.no_grad(), warnings.catch_warnings():
            # an empty tape is an error here, told below
            warnings.filterwarnings("ignore", message="record found no attention")
            with record(model, layers=list(layers) or None) as tape:
                yield tape
    except MemoryError as error:
        raise ValueError(f"{error}; a shorter text, a smaller picture or --layers takes less") from error


def _run(folder: Path, text: str | None, layers: Sequence[str], weights: str) -> Heard:
    from regard.cli.loading import load
    from regard.data.text.special_tokens import BOS
    from regard.decoding.search import Beam
    from regard.tasks.translate.task import read_one

    loaded = load(folder, weights, "cpu", None)  # type: ignore[arg-type]
    interpreter = loaded.by
    if text is None:
        text = read_one(loaded.task, "valid").source[0]
    if not text.strip():
        raise ValueError("the text is empty, so there is nothing to look at; give a sentence")
    if loaded.task.decoder == "fixed":
        raise ValueError(f"the model of {folder} does not attend (decoder fixed), so there is nothing to see")
    ((said, *_),) = interpreter.translate([text], Beam(5))
    with taped(interpreter.model, layers) as tape:
        (seen,) = interpreter.align([text], [said])
    alignment = Alignment(
        seen.source, seen.target, seen.weights, text=(text, said.text or "(nothing)"), hard=interpreter.hard
    )
    # a decoder that looks at itself has the pieces it has read at its columns: its own, one later
    itself = any(one.kind == "self" and one.shape[-1] == len(seen.target) for one in tape)
    first = interpreter.vocabularies.target.pieces([BOS])
    target = [*first, *seen.target[:-1]] if itself else seen.target
    about = {**tape.about, "run": folder.name, "text": text, "translation": said.text}
    return Heard(replace(tape, about=about).with_labels(target, seen.source), said.text, alignment)


def _pretrained(folder: Path, text: str, layers: Sequence[str]) -> Heard:
    model, tokenizer, version = _loaded(folder)
    read = tokenizer(text, return_tensors="pt")
    ids = read["input_ids"]
    if not ids.numel():
        raise ValueError("the text has no tokens, so there is nothing to look at; give a sentence")
    pieces = tokenizer.convert_ids_to_tokens(ids[0].tolist())
    known = inspect.signature(model.forward).parameters
    given = {name: value for name, value in read.items() if name in known}
    try:
        if model.config.is_encoder_decoder:
            heard = _translated(model, tokenizer, given, pieces, text, layers)
        else:
            with taped(model, layers) as tape:
                model(**given)
            heard = Heard(tape.with_labels(pieces))
    except (IndexError, RuntimeError) as error:
        places = getattr(model.config, "max_position_embeddings", len(pieces))
        if len(pieces) <= places:
            raise
        raise ValueError(
            f"the text has {len(pieces)} tokens, and the model of {folder} knows {places} places; shorten the text"
        ) from error
    about = {**heard.recording.about, "folder": folder.name, "text": text, "transformers": version}
    return replace(heard, recording=replace(heard.recording, about=about))


def _translated(
    model: Any, tokenizer: Any, given: dict[str, Any], pieces: list[str], text: str, layers: Sequence[str]
) -> Heard:
    """What the model says, one likeliest token after the other; then all of it again at once, recorded."""
    with torch.no_grad():
        found = model.generate(**given, max_new_tokens=_TOKENS, do_sample=False, num_beams=1)
    with taped(model, layers) as tape:
        model(**given, decoder_input_ids=found[:, :-1], use_cache=False)
    spoken = tokenizer.convert_ids_to_tokens(found[0].tolist())
    said = tokenizer.decode(found[0], skip_special_tokens=True)
    cross = [one for one in tape if one.kind == "cross"]
    alignment = None
    if cross:
        # the layer before the last: where words are aligned best  (Garg et al. 2019)
        weights = cross[max(len(cross) - 2, 0)].weights.pick(0).dense().mean(0)
        alignment = Alignment(pieces, spoken[1:], weights, text=(text, said or "(nothing)"))
    recording = replace(tape.with_labels(spoken[:-1], pieces), about={**tape.about, "translation": said})
    return Heard(recording, said, alignment)


def _transformers(folder: Path) -> Any:
    """The library, quiet, if the folder holds what it may read."""
    try:
        import transformers
    except ImportError as error:
        raise ImportError(
            f"{folder} holds a model of transformers, which must be installed: pip install transformers"
        ) from error
    if not any(folder.glob("*.safetensors")):
        pickled = sorted(path.name for path in folder.iterdir() if path.suffix in (".bin", ".pt", ".pth", ".ckpt"))
        why = f"only {pickled[0]}, a pickle, which could run code" if pickled else "none"
        raise ValueError(f"{folder} must hold weights in .safetensors, got {why}; save it with save_pretrained")
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    return transformers


def _loaded(folder: Path) -> tuple[Any, Any, str]:
    """The model and its tokenizer."""
    transformers, safely = _transformers(folder), _SAFELY
    # without these, transformers makes up a tokenizer that knows no word
    if not _has_tokenizer(folder):
        raise ValueError(f"{folder} holds no tokenizer; save it beside the model with tokenizer.save_pretrained")
    with watching.loadable(folder, "tokenizer"):
        config = transformers.AutoConfig.from_pretrained(folder, **safely)
        auto = transformers.AutoModelForSeq2SeqLM if config.is_encoder_decoder else transformers.AutoModel
        model = auto.from_pretrained(folder, config=config, use_safetensors=True, **safely)
        tokenizer = transformers.AutoTokenizer.from_pretrained(folder, **safely)
    return model.eval(), tokenizer, transformers.__version__

"""ServedRuns: the runs of `regard serve`, loaded at its start and, where their files have changed, at every reload."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from regard.cli import run_options
from regard.cli.main import sentence
from regard.inference.limits import Limits
from regard.serve.access import UNNAMED, check_token, read_tokens
from regard.serve.served_model import ServedModel, check_names
from regard.tasks.registry import describe, read_config

if TYPE_CHECKING:
    from regard.cli.verbs.serve import ServeOptions
    from regard.serve.reloading import ReloadResult
    from regard.tasks.base import TaskConfig


class ServedRuns:
    """Loads the runs that the options name; each has the name of its folder if there are several."""

    def __init__(self, options: "ServeOptions") -> None:
        self._options = options
        # a link has its own name, and "." that of the folder
        self._names = [os.path.basename(os.path.abspath(folder)) for folder in options.run]
        if len(self._names) > 1:
            check_names(self._names)
        self._signatures: dict[Path, object] = {}

    def load(self, configs: "Sequence[TaskConfig]") -> list[ServedModel]:
        """All runs with their weights."""
        runs = zip(self._options.run, self._names, configs, strict=True)
        return [self._load(folder, name, config) for folder, name, config in runs]

    def tokens(self) -> Mapping[str, str]:
        """The tokens by their names, none if none is asked for."""
        if self._options.token_file is not None:
            return read_tokens(self._options.token_file)
        return {} if self._options.token is None else {UNNAMED: check_token(self._options.token)}

    def reload(self, served: Sequence[ServedModel], tokens: Mapping[str, str]) -> "ReloadResult":
        """The models that are served now: a run whose files have changed is loaded, checked against its manifest and
        tried, and one that cannot be read leaves its model as it was."""
        from regard.serve.reloading import ReloadResult

        models, exchanged, refused = list(served), [], []
        for n, (folder, model) in enumerate(zip(self._options.run, served, strict=True)):
            try:
                loaded = self._reload(folder, self._names[n], model)
            except Exception as error:
                refused.append(f"{folder} stays at version {model.version}: {_reason(error)}")
                continue
            if loaded.version != model.version:
                exchanged.append(f"{folder} is now version {loaded.version}, before {model.version}")
                models[n] = loaded
        try:
            present = self.tokens()
            if present != tokens:
                exchanged.append("the tokens are those of the file now")
        except ValueError as error:
            present = tokens
            refused.append(f"the tokens stay as they are: {error}")
        return ReloadResult(models, present, exchanged, refused)

    def _reload(self, folder: Path, name: str, model: ServedModel) -> ServedModel:
        from regard.tasks import manifest

        if manifest.signature(folder) == self._signatures[folder]:
            return model
        config = read_config(folder)
        if not config.is_served:
            raise ValueError(f"{describe(folder, config)}, which is not served")
        loaded = self._load(folder, name, config)
        if (loaded.endpoint.name, loaded.endpoint.unit) != (model.endpoint.name, model.endpoint.unit):
            raise ValueError(
                f"it answers at /v1/{loaded.endpoint.name} now, and not at /v1/{model.endpoint.name}; "
                "start the service again to serve another task"
            )
        return loaded

    def _load(self, folder: Path, name: str, config: "TaskConfig") -> ServedModel:
        from regard.tasks import manifest

        fields_of_task = {item.name for item in fields(config.Serve)}
        task_options = config.Serve(**{k: value for k, value in self._options.task.items() if k in fields_of_task})
        limits = _limits(self._options, task_options)
        before = manifest.signature(folder)
        loaded = run_options.load(folder, self._options.load)
        checked = manifest.check(loaded, answers=self._options.load.get("quantization") is None)
        endpoint = loaded.predictor.endpoint(limits, run=name, step=loaded.step)
        if manifest.signature(folder) != before:
            raise ValueError("its files changed while they were read; reload again when the copy is complete")
        self._signatures[folder] = before
        return ServedModel(endpoint, limits, name if len(self._names) > 1 else "", checked.version)


def _reason(error: Exception) -> str:
    return sentence(error) if isinstance(error, ValueError | OSError) else f"{type(error).__name__}: {error}"


def _limits(options: "ServeOptions", task_options: Any) -> Limits:
    """The limits that were typed, or that the task gives; otherwise the defaults of Limits."""
    names = [item.name for item in fields(Limits)]
    values = {name: getattr(task_options, name, getattr(options, name, None)) for name in names}
    return Limits(**{name: value for name, value in values.items() if value is not None})

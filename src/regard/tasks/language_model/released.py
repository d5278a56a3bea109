"""Released language models: a folder with GPT-2 or a Llama-like model in transformers' layout as a predictor."""

from regard.data.text.running_text import read_documents
from regard.data.text.special_tokens import SpecialTokens
from regard.inference.evaluation import Evaluation, Progress
from regard.models.language_model import LanguageModel
from regard.models.pretrained.folder import CONFIG, CheckpointConfig, read_generation_config
from regard.models.pretrained.loading import PretrainedModel
from regard.models.pretrained.prompt_tokenizer import ReleasedTokenizer
from regard.models.pretrained.tokenizer_files import load_tokenizer
from regard.tasks.language_model.evaluation import check_options, evaluate_text
from regard.tasks.language_model.options import EvaluateLanguageModel
from regard.tasks.language_model.predictor import LanguageModelPredictor

# the entries of config.json that hold the number of positions, GPT-2's first
_POSITIONS = ("n_positions", "max_position_embeddings")


def released_language_model(loaded: PretrainedModel) -> LanguageModelPredictor:
    """The predictor reads as many tokens at once as the model has positions, and refuses longer prompts."""
    assert isinstance(loaded.model, LanguageModel)
    config = read_generation_config(loaded.config)
    ends = _ids(config, "eos_token_id")
    begins = [*_ids(config, "bos_token_id"), *ends, -1]
    padding = [*_ids(config, "pad_token_id"), *ends, 0]
    library = load_tokenizer(loaded.config)
    unknown = getattr(library.model, "unk_token", None)
    special = SpecialTokens(
        padding[0], begins[0], [*ends, -1][0], None if unknown is None else library.token_to_id(unknown), ()
    )
    longest = config.integer(next((key for key in _POSITIONS if key in config.values), _POSITIONS[-1]))
    return LanguageModelPredictor(
        loaded.model, ReleasedTokenizer(library, special), longest=longest, ends=ends, cuts_prompts=False
    )


def _ids(config: CheckpointConfig, key: str) -> list[int]:
    """One id or several; a default of transformers that the vocabulary does not reach stands for none."""
    value = config.values.get(key)
    values = value if isinstance(value, list) else [] if value is None else [value]
    if not all(isinstance(n, int) and not isinstance(n, bool) for n in values):
        raise ValueError(f"{key} of {config.folder / CONFIG} must be an id or a list of ids, got {value!r}; correct it")
    return [n for n in values if 0 <= n < config.integer("vocab_size")]


def evaluate_language_model(
    predictor: LanguageModelPredictor, options: EvaluateLanguageModel, progress: Progress
) -> Evaluation:
    """The perplexity on the documents of --test, in windows as long as the positions of the model."""
    assert predictor.longest is not None
    check_options(predictor, options, predictor.longest)
    documents, split = read_documents(options.test), " ".join(map(str, options.test))
    return evaluate_text(predictor, documents, split, options, predictor.longest, None, progress)

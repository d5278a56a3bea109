"""Entries of generation_config.json: those that change the tokens are obeyed or named, none is left out."""

from pathlib import Path

import transformers

from regard.models.pretrained.folder import CheckpointConfig
from regard.models.pretrained.generation import ignored_entries

# entries that regard reads
READ = {"pad_token_id", "bos_token_id", "eos_token_id", "decoder_start_token_id", "max_length"}
# entries that change the speed, the memory or what is returned beside the tokens; NaN is an error here
WITHOUT_EFFECT = {
    *("use_cache", "cache_implementation", "cache_config", "max_cache_len", "prefill_chunk_size", "low_memory"),
    *("output_attentions", "output_hidden_states", "output_scores", "output_logits", "return_dict_in_generate"),
    *("is_assistant", "num_assistant_tokens", "num_assistant_tokens_schedule", "assistant_confidence_threshold"),
    *("prompt_lookup_num_tokens", "max_matching_ngram_size", "assistant_early_exit", "assistant_lookbehind"),
    *("target_lookbehind", "assistant_ensemble_weight", "speculation_type", "use_mtp", "continuous_batching_config"),
    *("compile_config", "disable_compile", "remove_invalid_values", "transformers_version", "_from_model_config"),
}


def test_every_entry_of_transformers_is_read_named_or_without_effect() -> None:
    entries = set(vars(transformers.GenerationConfig())) - READ - WITHOUT_EFFECT
    named = ignored_entries(CheckpointConfig(Path(), dict.fromkeys(entries, "another value")))
    assert set(named) == entries


def test_neutral_values_are_not_named() -> None:
    defaults = transformers.GenerationConfig(do_sample=False, num_beams=1, top_k=50, repetition_penalty=1.0)
    assert ignored_entries(CheckpointConfig(Path(), vars(defaults))) == {}

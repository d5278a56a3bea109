"""ignored_entries: entries of generation_config.json that change the tokens of `generate` in transformers alone."""

from typing import Any

from regard.models.pretrained.folder import CheckpointConfig

# entries that change nothing where they are null
_UNSET = (
    *("bad_words_ids", "begin_suppress_tokens", "constraints", "dola_layers", "exponential_decay_length_penalty"),
    *("force_words_ids", "forced_bos_token_id", "forced_decoder_ids", "forced_eos_token_id", "guidance_scale"),
    *("max_new_tokens", "max_time", "min_new_tokens", "min_p", "penalty_alpha", "sequence_bias", "stop_strings"),
    *("suppress_tokens", "top_h", "watermarking_config"),
)
# the value of each entry that changes nothing; ids, lengths and the search itself are read or typed elsewhere
_NEUTRAL: dict[str, Any] = {
    "diversity_penalty": 0.0,
    "do_sample": False,
    "early_stopping": False,
    "encoder_no_repeat_ngram_size": 0,
    "encoder_repetition_penalty": 1.0,
    "epsilon_cutoff": 0.0,
    "eta_cutoff": 0.0,
    "length_penalty": 1.0,
    "min_length": 0,
    "no_repeat_ngram_size": 0,
    "num_beam_groups": 1,
    "num_beams": 1,
    "num_return_sequences": 1,
    "renormalize_logits": False,
    "repetition_penalty": 1.0,
    "temperature": 1.0,
    "token_healing": False,
    "top_k": 50,
    "top_p": 1.0,
    "typical_p": 1.0,
    **dict.fromkeys(_UNSET),
}


def ignored_entries(config: CheckpointConfig) -> dict[str, Any]:
    """The entries with another value than the neutral one; null stands for the neutral value.

    A translation never holds the token of padding, so that `bad_words_ids` of this token alone is obeyed.
    """
    padding = config.values.get("pad_token_id")
    return {
        key: config.values[key]
        for key, neutral in sorted(_NEUTRAL.items())
        if config.values.get(key) not in (None, neutral)
        and not (key == "bad_words_ids" and config.values[key] == [[padding]])
    }

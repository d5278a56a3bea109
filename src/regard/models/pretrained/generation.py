"""ignored_entries: entries of generation_config.json that change the tokens of `generate` in transformers alone."""

from typing import Any

from regard.models.pretrained.folder import CheckpointConfig

# the value of each entry that changes nothing; ids, lengths and the search itself are read or typed elsewhere
_NEUTRAL: dict[str, Any] = {
    "bad_words_ids": None,
    "begin_suppress_tokens": None,
    "constraints": None,
    "diversity_penalty": 0.0,
    "do_sample": False,
    "dola_layers": None,
    "early_stopping": False,
    "encoder_no_repeat_ngram_size": 0,
    "encoder_repetition_penalty": 1.0,
    "epsilon_cutoff": 0.0,
    "eta_cutoff": 0.0,
    "exponential_decay_length_penalty": None,
    "force_words_ids": None,
    "forced_bos_token_id": None,
    "forced_decoder_ids": None,
    "forced_eos_token_id": None,
    "guidance_scale": None,
    "length_penalty": 1.0,
    "max_new_tokens": None,
    "max_time": None,
    "min_length": 0,
    "min_new_tokens": None,
    "min_p": None,
    "no_repeat_ngram_size": 0,
    "num_beam_groups": 1,
    "num_beams": 1,
    "num_return_sequences": 1,
    "penalty_alpha": None,
    "renormalize_logits": False,
    "repetition_penalty": 1.0,
    "sequence_bias": None,
    "stop_strings": None,
    "suppress_tokens": None,
    "temperature": 1.0,
    "token_healing": False,
    "top_h": None,
    "top_k": 50,
    "top_p": 1.0,
    "typical_p": 1.0,
    "watermarking_config": None,
}


def ignored_entries(config: CheckpointConfig) -> dict[str, Any]:
    """The entries with another value than the neutral one; null stands for the neutral value.

    A translation never holds the token of padding, so that `bad_words_ids` of this token alone is obeyed.
    """
    padding = config.values.get("pad_token_id")
    return {
        key: config.values[key]
        for key, neutral in _NEUTRAL.items()
        if config.values.get(key) not in (None, neutral)
        and not (key == "bad_words_ids" and config.values[key] == [[padding]])
    }

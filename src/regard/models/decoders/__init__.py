"""Decoders of the Llama family: one class per released model, built of the parts of CausalDecoder."""

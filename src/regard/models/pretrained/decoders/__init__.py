"""Decoders of the Llama family in transformers' layout: one file per released model."""

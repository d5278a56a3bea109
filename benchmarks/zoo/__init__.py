"""Tiny random models of every class in transformers' model mappings, and sweeps over them."""

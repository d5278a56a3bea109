"""Blocks that models are built of: recurrent decoders that attend, Transformer layers, and the search for a translation."""

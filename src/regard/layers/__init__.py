"""Blocks that models are built of: recurrent decoders that attend, Transformer layers, the search for a translation."""

"""Attention over feature maps "b c *s": the equation read in place, out = weights(x) · x."""

"""Classifiers of clips: sequences of pictures "b t c h w", and signals "b t c"."""

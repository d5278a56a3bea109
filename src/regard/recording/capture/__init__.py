"""Capture of attention calls while a model runs, and the certificates of their maps."""

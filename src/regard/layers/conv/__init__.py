"""Layers of convolutional sequence-to-sequence models."""

"""Layers of models that write and read a memory."""

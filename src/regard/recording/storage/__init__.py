"""Recordings as safetensors files."""

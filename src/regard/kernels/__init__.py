"""Kernels: additive scores and sparse normalizers, native where the C library was built, in torch everywhere else.

The bottom room: it knows tensors and imports nothing else of regard.
"""

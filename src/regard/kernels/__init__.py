"""Kernels: bare functions of tensors, native where the C library was built, in torch everywhere else."""

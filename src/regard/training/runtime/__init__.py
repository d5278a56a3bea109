"""The process that trains: signals, threads, allocator, memory and torch.distributed."""

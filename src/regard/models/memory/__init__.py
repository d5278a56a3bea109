"""Models that write and read a memory."""

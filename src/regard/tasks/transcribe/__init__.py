"""The task transcribe."""

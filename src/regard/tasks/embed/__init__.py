"""The task embed."""

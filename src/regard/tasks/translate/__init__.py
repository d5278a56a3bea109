"""The task translate."""

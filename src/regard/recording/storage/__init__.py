"""A recording as a file."""

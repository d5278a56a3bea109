"""The task match."""

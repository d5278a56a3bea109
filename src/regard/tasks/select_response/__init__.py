"""The task select-response."""

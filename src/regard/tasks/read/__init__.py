"""The task read: the span of a passage that answers a question."""

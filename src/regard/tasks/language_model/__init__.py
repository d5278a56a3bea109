"""The task language-model."""

"""The task masked-lm."""

"""The task answer: questions about stories."""

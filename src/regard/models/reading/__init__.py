"""Models that answer questions about passages and stories."""

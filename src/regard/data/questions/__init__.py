"""Questions about passages and stories."""

"""Parts of MultiHead: norms of queries and keys."""

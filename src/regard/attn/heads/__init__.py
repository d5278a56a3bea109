"""Parts of MultiHead: norms of queries and keys, the gate of the output."""

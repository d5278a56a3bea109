"""Parts of MultiHead: norms of queries and keys, differences of maps, gates of the output, forget gates."""

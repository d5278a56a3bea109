"""Files -> pairs of lines -> numbers -> batches. Knows no model, and torch only where batches become tensors."""

"""Models of the nodes of a graph."""

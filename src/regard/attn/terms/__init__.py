"""The terms of the equation: scores, biases, masks, normalizers, reads and positions."""

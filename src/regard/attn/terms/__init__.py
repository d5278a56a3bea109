"""The terms of the equation, memory, positions and the call that joins them."""

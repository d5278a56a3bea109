"""The attention equation: terms, calls, backends, maps, mechanisms and the layers built on them."""

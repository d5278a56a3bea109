"""Labels, fonts and heat maps in a terminal."""

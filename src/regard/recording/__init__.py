"""Recording, analysis and storage of the attention maps of any model, each with a certificate of its accuracy."""

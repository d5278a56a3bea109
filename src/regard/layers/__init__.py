"""Building blocks of models: recurrent encoders and decoders, Transformer layers, query pooling, dropout."""

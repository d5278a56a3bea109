"""Models in folders that transformers saved, loaded without running their code and run while they are recorded."""

"""What a trained model can do, whatever its task: predict, evaluate, be recorded, drawn and served."""

"""Sound: WAV files, transcripts, and log-mel features."""

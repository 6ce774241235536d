"""One small file a format: the official files in, dialogues out."""

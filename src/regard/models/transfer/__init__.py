"""Models around a pretrained encoder of texts."""

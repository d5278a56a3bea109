"""Released checkpoints in transformers' layout, mapped to regard's models and back: one file per released model."""

from regard.models.pretrained.loading import ARCHITECTURES, PretrainedModel, load_pretrained, save_pretrained

__all__ = ["ARCHITECTURES", "PretrainedModel", "load_pretrained", "save_pretrained"]

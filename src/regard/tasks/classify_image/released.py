"""Released classifiers of images: a folder with a ViT in transformers' layout as an ImageClassifier."""

from regard.models.pretrained.architecture import class_names
from regard.models.pretrained.image_processor import load_image_processor
from regard.models.pretrained.loading import PretrainedModel
from regard.models.vit import ViTClassifier
from regard.tasks.classify_image.predictor import ImageClassifier
from regard.tasks.shared.image_data import ImageStats


def released_image_classifier(loaded: PretrainedModel) -> ImageClassifier:
    """Images are resized, rescaled and normalized as preprocessor_config.json says."""
    model = loaded.model
    assert isinstance(model, ViTClassifier)
    height, width = model.encoder.image
    channels = model.encoder.patches.in_channels
    if channels not in (1, 3):
        raise ValueError(
            f"{loaded.config.folder} reads images of {channels} channels, and files have 1 or 3; "
            "name a folder of another model"
        )
    processor = load_image_processor(loaded.config, (height, width), channels)
    classes = class_names(loaded.config, model.output.out_features)
    # the model itself subtracts the mean and divides by the standard deviation
    stats = ImageStats(channels, height, width, classes, 0.0, 1.0, "", resample=processor.resample)
    return ImageClassifier(processor.normalize(model), stats)

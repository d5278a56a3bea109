"""write_ctranslate2: a folder that CTranslate2 reads, and the tokenizers of its vocabularies."""

from collections.abc import Mapping
from pathlib import Path

from regard.data.text.library_vocabulary import LibraryVocabulary
from regard.export.ctranslate2_model import write_decoder, write_encoder, write_translator
from regard.export.graphs import has_encoder_graph
from regard.export.vocabulary_files import TARGET_TOKENIZER, TOKENIZER, write_tokenizer
from regard.inference.exportable import Exportable
from regard.models.gpt2 import GPT2
from regard.models.transfer.text_embedder import TextEmbedder
from regard.models.transformer import Transformer


def write_ctranslate2(parts: Exportable, folder: Path) -> Mapping[str, str]:
    """Raises ValueError if CTranslate2 has no model with the parts of this one."""
    try:
        import ctranslate2  # noqa: F401
    except ImportError as error:
        raise ImportError("--to ctranslate2 needs: pip install 'regard[export]'") from error
    model, vocabulary = parts.model, parts.vocabulary
    if isinstance(model, Transformer) and parts.target is not None:
        source, target = model.source.num_embeddings, model.target.num_embeddings
        names = _names(parts.target, "bos", "eos", "unk")
        write_translator(model, folder, vocabulary.padded(source), parts.target.padded(target), **names)
        files = {"model.bin": "weights of a Transformer, for ctranslate2.Translator"}
        if write_tokenizer(parts.target, folder / TARGET_TOKENIZER):
            files[TARGET_TOKENIZER] = "of translations, for the library tokenizers"
    elif isinstance(model, GPT2):
        tokens = vocabulary.padded(model.embedding.num_embeddings)
        write_decoder(model, folder, tokens, **_names(vocabulary, "bos", "eos", "unk"))
        files = {"model.bin": "weights of a decoder, for ctranslate2.Generator"}
    elif isinstance(model, TextEmbedder) and not model.encoder.levels:
        bert = model.encoder.bert
        write_encoder(bert, folder, vocabulary.padded(bert.embedding.num_embeddings), **_names(vocabulary, "unk"))
        length = ", divided by its length" if model.normalize else ""
        purpose = f"a vector is the {model.pooling} of its states{length}, which CTranslate2 does not compute"
        files = {"model.bin": f"weights of an encoder, for ctranslate2.Encoder; {purpose}"}
    else:
        way = "export it --to onnx" if has_encoder_graph(model) else "train one of these"
        raise ValueError(
            f"CTranslate2 has no {type(model).__name__}: it has translators (Transformer), decoders (GPT2) and "
            f"encoders without a head (TextEmbedder of the last layer); {way}"
        )
    if write_tokenizer(vocabulary, folder / TOKENIZER):
        files[TOKENIZER] = "of texts, for the library tokenizers"
    return files


def _names(vocabulary: LibraryVocabulary, *special: str) -> dict[str, str]:
    """The texts of special tokens; one that a vocabulary does not have is never read nor written."""
    end = vocabulary.name("eos") or vocabulary.pieces[0]
    return {name: vocabulary.name(name) or end for name in special}

"""Generated texts whose deciding words are known."""

from regard.data.embedded import verdicts


def test_the_deciding_words_decide() -> None:
    splits = verdicts.splits(3, train=40, valid=8, test=12)
    texts = [*splits.train.texts, *splits.valid.texts, *splits.test.texts]
    assert len(texts) == len(set(texts)) == 60
    for part in (splits.train, splits.valid, splits.test):
        for text, label in zip(part.texts, part.labels.tolist(), strict=True):
            counts = {topic: len(verdicts.deciding_words(text, topic)) for topic in verdicts.CLASSES}
            own = counts.pop(verdicts.CLASSES[label])
            assert own in verdicts.DECIDING
            assert sorted(counts.values()) == [0, 0, 1]
            assert len(text.split()) == verdicts.LENGTH


def test_words_are_of_one_topic_or_none() -> None:
    words = [word for topic in verdicts.WORDS.values() for word in topic] + list(verdicts.FILLERS)
    assert len(words) == len(set(words))

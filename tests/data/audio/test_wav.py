"""WAV files of every kind that is read, against samples that are written here, and all that is refused."""

import io
import re
import struct
import wave
from pathlib import Path

import numpy as np
import pytest
from tests.for_each import for_each

from regard.data.audio.wav import Sound, read_wav, wav_bytes

SAMPLES = np.array([0.0, 0.5, -0.5, 0.25, -1.0, 0.75, 0.125])
EXTENSIBLE = 0xFFFE


def riff(
    data: bytes,
    *,
    code: int = 1,
    bits: int = 16,
    channels: int = 1,
    rate: int = 8000,
    extra: bytes = b"",
    size: int | None = None,
    before: bytes = b"",
) -> bytes:
    layout = struct.pack("<HHIIHH", code, channels, rate, rate * channels * bits // 8, channels * bits // 8, bits)
    chunks = before + b"fmt " + struct.pack("<I", len(layout + extra)) + layout + extra
    chunks += b"data" + struct.pack("<I", len(data) if size is None else size) + data
    return b"RIFF" + struct.pack("<I", 4 + len(chunks)) + b"WAVE" + chunks


def integers(bits: int) -> bytes:
    values = (SAMPLES * 2 ** (bits - 1)).astype(np.int64)
    if bits == 8:
        return (values + 128).astype(np.uint8).tobytes()
    return b"".join(int(value).to_bytes(bits // 8, "little", signed=True) for value in values)


def extension(code: int, bits: int) -> bytes:
    return struct.pack("<HHIH", 22, bits, 0, code) + bytes.fromhex("000000001000800000aa00389b71")


@pytest.mark.parametrize("bits", [8, 16, 24, 32])
@pytest.mark.parametrize("is_extensible", [False, True])
def test_integers_of_every_size(bits: int, is_extensible: bool) -> None:
    kind = {"code": EXTENSIBLE, "extra": extension(1, bits)} if is_extensible else {}
    sound = read_wav(riff(integers(bits), bits=bits, **kind))
    assert sound.rate == 8000
    np.testing.assert_allclose(sound.samples, SAMPLES, atol=0.01 if bits == 8 else 1e-4)


@pytest.mark.parametrize("bits", [32, 64])
@pytest.mark.parametrize("is_extensible", [False, True])
def test_floats(bits: int, is_extensible: bool) -> None:
    data = SAMPLES.astype(f"<f{bits // 8}").tobytes()
    kind = {"code": EXTENSIBLE, "extra": extension(3, bits)} if is_extensible else {"code": 3}
    sound = read_wav(riff(data, bits=bits, rate=11025, **kind))
    assert sound.rate == 11025
    np.testing.assert_array_equal(sound.samples, SAMPLES.astype(np.float32))


def test_channels_are_averaged() -> None:
    stereo = np.stack([SAMPLES, -0.5 * SAMPLES, 0 * SAMPLES], 1).astype("<f4")
    np.testing.assert_allclose(
        read_wav(riff(stereo.tobytes(), code=3, bits=32, channels=3)).samples, SAMPLES / 6, atol=1e-7
    )


def test_other_chunks_are_passed_over(tmp_path: Path) -> None:
    odd = b"LIST" + struct.pack("<I", 3) + b"abc\0"
    path = tmp_path / "a.wav"
    path.write_bytes(riff(integers(16), before=odd) + b"LIST" + struct.pack("<I", 2) + b"ab")
    np.testing.assert_allclose(read_wav(path).samples, SAMPLES, atol=1e-4)


@pytest.mark.parametrize("size", [0, 0x7FFFF000, 0x7FFFFFFF, 0xFFFFFFFF - 36, 0xFFFFFFFF])
def test_a_length_that_its_writer_did_not_know(size: int) -> None:
    assert len(read_wav(riff(integers(16), size=size)).samples) == len(SAMPLES)


def test_python_reads_what_is_written() -> None:
    sound = Sound(SAMPLES.astype(np.float32), 16000)
    with wave.open(io.BytesIO(wav_bytes(sound))) as file:
        assert (file.getnchannels(), file.getsampwidth(), file.getframerate()) == (1, 2, 16000)
        values = np.frombuffer(file.readframes(99), "<i2") / 32767
    np.testing.assert_allclose(values, SAMPLES, atol=1e-4)
    np.testing.assert_allclose(read_wav(wav_bytes(sound)).samples, SAMPLES, atol=1e-4)
    assert sound.seconds == len(SAMPLES) / 16000


REFUSED = {
    "a.wav is truncated: it declares 99 bytes of sound and holds 14": riff(integers(16), size=99),
    "a.wav is empty: it holds no sound; record it again": riff(b""),
    "a.wav is empty: it holds no byte": b"",
    "a.wav is truncated: it ends before its format": b"RIFF\4\0\0\0WAVE",
    "a.wav is truncated: it ends before its sound": riff(integers(16))[:36],
    "a.wav is truncated: it ends before its sound; copy": riff(integers(16))[:26],
    "a.wav has sound before its format": b"RIFF\4\0\0\0WAVE" + b"data\2\0\0\0ab",
    "a.wav has a sample rate of 0; write it with its rate, as in: ffmpeg -ar 16000": riff(integers(16), rate=0),
    "a.wav has a sample rate of 768,001, and 1,000 to 768,000 are read; write it with another rate, as in": riff(
        integers(16), rate=768_001
    ),
    "a.wav has a sample rate of 999, and 1,000 to 768,000 are read; write it with another rate, as in": riff(
        integers(16), rate=999
    ),
    "a.wav has samples that are no finite numbers; write it again": riff(
        struct.pack("<d", 1e308) * 90, bits=64, code=3
    ),
    "a.wav has samples up to 3e+38, and full scale is 1; write it with samples from -1 to 1": riff(
        struct.pack("<2f", 1.0, -3e38), code=3, bits=32
    ),
    "a.wav has 0 channels of sound; record it again with one": riff(integers(16), channels=0),
    "a.wav has samples of 12 bits, and 8, 16, 24, 32 or float 32, 64 are read": riff(integers(16), bits=12),
    "a.wav has float samples of 16 bits": riff(integers(16), code=3),
    "a.wav is compressed (mu-law), and plain samples are read; convert it, as in: ffmpeg -i": riff(
        b"ab", code=7, bits=8
    ),
    "a.wav is compressed (A-law)": riff(b"ab", code=6, bits=8),
    "a.wav is compressed (ADPCM)": riff(b"ab", code=2, bits=4),
    "a.wav is compressed (IMA ADPCM)": riff(b"ab", code=0x11, bits=4),
    "a.wav is compressed (MP3)": riff(b"ab", code=0x55, bits=0),
    "a.wav is compressed (in format 0x1234)": riff(b"ab", code=0x1234),
    "a.wav has samples that are no finite numbers": riff(struct.pack("<2f", 1.0, float("nan")), code=3, bits=32),
    "a.wav is FLAC, and WAV is read; convert it": b"fLaC\0\0\0\0",
    "a.wav is MP3, and WAV is read": b"ID3\3\0\0\0\0",
    "a.wav is no WAV file: it does not begin with RIFF and WAVE": b"hello, this is text",
}


@for_each("message", REFUSED)
def test_other_files_are_refused(message: str, tmp_path: Path) -> None:
    (tmp_path / "a.wav").write_bytes(REFUSED[message])
    with pytest.raises(ValueError, match=re.escape(message)):
        read_wav(tmp_path / "a.wav")


def test_paths_without_a_file(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="is a folder; name the WAV files in it"):
        read_wav(tmp_path)
    with pytest.raises(ValueError, match=r"there is no file .*none.wav; name a WAV file that is there"):
        read_wav(tmp_path / "none.wav")
    with pytest.raises(ValueError, match="the recording is empty"):
        read_wav(b"", name="the recording")
    with pytest.raises(ValueError, match="the sound is empty"):
        read_wav(b"")

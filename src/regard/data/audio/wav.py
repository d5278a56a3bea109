"""Reads WAV files, or their bytes, as one channel of samples.  No torch here.

    sound = read_wav(Path("word.wav"))
    sound.samples, sound.rate

The reader is written here since Python's `wave` refuses float samples and reads a truncated file without a word.
Samples are integers of 8, 16, 24 or 32 bits or floats of 32 or 64, plain or extensible; several channels are averaged.
"""

import struct
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

_PCM, _FLOAT, _EXTENSIBLE = 1, 3, 0xFFFE
_COMPRESSED = {
    0x0002: "ADPCM",
    0x0006: "A-law",
    0x0007: "mu-law",
    0x0011: "IMA ADPCM",
    0x0031: "GSM 6.10",
    0x0050: "MPEG",
    0x0055: "MP3",
    0x00FF: "AAC",
}
# the first bytes of other files with sound
_SIGNATURES = {
    b"fLaC": "FLAC",
    b"OggS": "Ogg",
    b"ID3": "MP3",
    b"\xff\xfb": "MP3",
    b"FORM": "AIFF",
    b".snd": "AU",
    b"caff": "CAF",
    b"NIST_1A": "NIST SPHERE",
    b"RF64": "RF64",
    b"RIFX": "RIFX",
}
# A program that does not know the length, as into a pipe, writes 0 or a size from here on: sox 0x7FFFF000, others
# 0xFFFFFFFF less the header.
_UNKNOWN_SIZE = 0x7FFFF000
# chunks that may follow a chunk of sound that is truly empty
_OTHER_CHUNKS = (b"LIST", b"fact", b"id3 ", b"ID3 ", b"bext", b"cue ")
# samples per second: fewer would grow too much when they are resampled, and no recorder takes more
_LOWEST_RATE, _HIGHEST_RATE = 1000, 768_000
# the greatest sample of a file that was written without scaling
_LOUDEST = 1e6
_CONVERT = "convert it, as in: ffmpeg -i {} -c:a pcm_s16le speech.wav"


@dataclass(frozen=True, eq=False)
class Sound:
    """One channel of samples, mostly between −1 and 1, and their number per second."""

    samples: NDArray[np.float32]  # "n"
    rate: int

    @property
    def seconds(self) -> float:
        return len(self.samples) / self.rate


@dataclass(frozen=True)
class WavFormat:
    """The kind, width, channels and rate of samples."""

    is_float: bool
    bits: int
    channels: int
    rate: int

    @property
    def frame_bytes(self) -> int:
        """Bytes of a sample of all channels."""
        return self.channels * self.bits // 8

    def samples(self, data: bytes) -> NDArray[np.float32]:
        """The mean over the channels of all whole samples."""
        data = data[: len(data) // self.frame_bytes * self.frame_bytes]
        if self.is_float:
            values = np.frombuffer(data, f"<f{self.bits // 8}")
        elif self.bits == 8:  # alone without a sign
            values = (np.frombuffer(data, np.uint8).astype(np.float32) - 128) / 128
        elif self.bits == 24:
            # as the upper three bytes of four, so that the sign is in its place
            wide = np.zeros((len(data) // 3, 4), np.uint8)
            wide[:, 1:] = np.frombuffer(data, np.uint8).reshape(-1, 3)
            values = wide.view("<i4")[:, 0] / 2.0**31
        else:
            values = np.frombuffer(data, f"<i{self.bits // 8}") / 2.0 ** (self.bits - 1)
        with np.errstate(over="ignore"):  # an infinite sample is refused
            return values.reshape(-1, self.channels).mean(1, dtype=np.float64).astype(np.float32)


def read_wav(source: Path | bytes, name: str | None = None) -> Sound:
    """The sound of a file or of its bytes; `name` names it in errors."""
    label = name or (str(source) if isinstance(source, Path) else "the sound")
    if isinstance(source, Path):
        if source.is_dir():
            raise ValueError(f"{label} is a folder; name the WAV files in it")
        if not source.exists():
            raise ValueError(f"there is no file {label}; name a WAV file that is there")
    data = source.read_bytes() if isinstance(source, Path) else source
    layout, start, size = wav_header(data, label)
    held = len(data) - start
    is_empty = size == 0 and data[start : start + 4] in _OTHER_CHUNKS
    if (held < size and size >= _UNKNOWN_SIZE) or (size == 0 and not is_empty):
        size = held
    if size > held:
        raise ValueError(
            f"{label} is truncated: it declares {size:,} bytes of sound and holds {held:,}; copy or record it again"
        )
    samples = layout.samples(data[start : start + size])
    if not len(samples):
        raise ValueError(f"{label} is empty: it holds no sound; record it again, or leave it out")
    if not np.isfinite(samples).all():
        raise ValueError(f"{label} has samples that are no finite numbers; write it again")
    if (peak := float(np.abs(samples).max())) > _LOUDEST:
        raise ValueError(
            f"{label} has samples up to {peak:.3g}, and full scale is 1; write it with samples from -1 to 1"
        )
    return Sound(samples, layout.rate)


def wav_header(data: bytes, label: str) -> tuple[WavFormat, int, int]:
    """The format of the samples, where they begin, and the number of their bytes as the file declares it."""
    _check_signature(data, label)
    layout, position = None, 12
    while position + 8 <= len(data):
        chunk, size = data[position : position + 4], struct.unpack_from("<I", data, position + 4)[0]
        position += 8
        if chunk == b"fmt ":
            layout = _format(data[position : position + size], size, label)
        elif chunk == b"data":
            if layout is None:
                raise ValueError(f"{label} has sound before its format; {_CONVERT.format(label)}")
            return layout, position, size
        # chunks begin at even places
        position += size + size % 2
    part = "format" if layout is None else "sound"
    raise ValueError(f"{label} is truncated: it ends before its {part}; copy or record it again")


def _check_signature(data: bytes, label: str) -> None:
    if not data:
        raise ValueError(f"{label} is empty: it holds no byte; record it again, or leave it out")
    for signature, kind in _SIGNATURES.items():
        if data.startswith(signature):
            raise ValueError(f"{label} is {kind}, and WAV is read; {_CONVERT.format(label)}")
    if not data.startswith(b"RIFF") or data[8:12] != b"WAVE":
        raise ValueError(f"{label} is no WAV file: it does not begin with RIFF and WAVE; {_CONVERT.format(label)}")


def _format(chunk: bytes, size: int, label: str) -> WavFormat:
    if len(chunk) < min(size, 16) or size < 16:
        raise ValueError(f"{label} is truncated: it ends before its sound; copy or record it again")
    code, channels, rate, _, _, bits = struct.unpack_from("<HHIIHH", chunk)
    if code == _EXTENSIBLE and len(chunk) >= 26:
        # the first two bytes of the identifier are the code of the format
        (code,) = struct.unpack_from("<H", chunk, 24)
    if code not in (_PCM, _FLOAT):
        kind = _COMPRESSED.get(code, f"in format {code:#06x}")
        raise ValueError(f"{label} is compressed ({kind}), and plain samples are read; {_CONVERT.format(label)}")
    if rate == 0:
        raise ValueError(
            f"{label} has a sample rate of 0; write it with its rate, as in: ffmpeg -ar 16000 -i {label} speech.wav"
        )
    if not _LOWEST_RATE <= rate <= _HIGHEST_RATE:
        raise ValueError(
            f"{label} has a sample rate of {rate:,}, and {_LOWEST_RATE:,} to {_HIGHEST_RATE:,} are read; write it with "
            f"another rate, as in: ffmpeg -i {label} -ar 16000 speech.wav"
        )
    if channels == 0:
        raise ValueError(f"{label} has 0 channels of sound; record it again with one")
    if bits not in ((32, 64) if code == _FLOAT else (8, 16, 24, 32)):
        raise ValueError(
            f"{label} has {'float ' if code == _FLOAT else ''}samples of {bits} bits, and 8, 16, 24, 32 or float 32, "
            f"64 are read; {_CONVERT.format(label)}"
        )
    return WavFormat(code == _FLOAT, bits, channels, rate)


def wav_bytes(sound: Sound) -> bytes:
    """A WAV file of 16 bits; what lies beyond −1 and 1 is clipped."""
    data = np.clip(np.round(sound.samples * 32767), -32768, 32767).astype("<i2").tobytes()
    layout = struct.pack("<4sIHHIIHH", b"fmt ", 16, _PCM, 1, sound.rate, 2 * sound.rate, 2, 16)
    body = b"WAVE" + layout + struct.pack("<4sI", b"data", len(data)) + data
    return struct.pack("<4sI", b"RIFF", len(body)) + body

"""Files that hold no instance are called what they are."""

from __future__ import annotations

from pathlib import Path

import pytest

from stagepack.errors import InputError, shown
from stagepack.formats.door import read

CONFIG = '{"architectures": ["LlamaForCausalLM"], "hidden_size": 4096}'


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("foo,bar\n1,2\n", 'first line is "foo,bar"; a table of buffers needs columns id,lower'),
        ("once upon a time", 'not recognised: the first line is "once upon a time"'),
        (CONFIG, "does not say its family; write \"model_type\""),
        ('{"metadata": {}, "weight_map": {}}', "lists files of weights; give config.json"),
        ('{"zero_optimization": {"stage": 2}}', "is a configuration of DeepSpeed"),
        ('{"clock": 1, "connection": [{"recvGBps": 1}]}', "is a table of devices without a model"),
        ('{"name": "chip", "lanes": 16}', "is a chip without operators"),
        ("# sweep\nmethods = []\n", "is TOML, in which only suites are written; give it to stage"),
        ("[[instances]]\n", "is TOML"),
        ("digraph G { a -> b }", "is a graph in DOT"),
        ("HloModule jit_f\n", "ends in -live-range.txt"),
        ("import torch\n", "is a program in Python"),
    ],
)  # fmt: skip
def test_what_a_file_is_and_what_to_give_instead(tmp_path: Path, text: str, said: str) -> None:
    file = tmp_path / "file"
    file.write_text(text)
    with pytest.raises(InputError) as caught:
        read(file)
    assert said in str(caught.value)


def test_weights_are_no_instance(tmp_path: Path) -> None:
    for data in (b"PK\x03\x04\x00\xff\x80", b"\x40" + bytes(7) + b'{"w": 1}\xff\x80'):
        file = tmp_path / "file"
        file.write_bytes(data)
        with pytest.raises(InputError, match="is an archive of weights"):
            read(file)


def test_what_is_left_of_long_texts_is_whole_words() -> None:
    text = " ".join(["word"] * 100)
    left = shown(text, 60)
    assert len(left) <= 60
    assert set(left.replace("…", " ").split()) == {"word"}
    assert shown("abcdefghij", 5) == "ab…ij"

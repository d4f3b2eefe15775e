import json
import os

import attrs
import ml_dtypes
import numpy as np
import pytest
from tests.model.folders import Given

from dovetail.errors import ConfigError
from dovetail_model.huggingface.safetensors import open_file, open_folder, write_file, write_folder

RNG = np.random.default_rng(0)
ARRAYS = {
    "single": RNG.normal(size=(3, 4)).astype(np.float32),
    "half": RNG.normal(size=(5,)).astype(np.float16),
    "brain": RNG.normal(size=(2, 2, 2)).astype(ml_dtypes.bfloat16),
    "double": np.array(np.pi),
    "empty": np.zeros((0, 3), np.float32),
}


def given(arrays=ARRAYS):
    return {name: Given(array) for name, array in arrays.items()}


def read(tensors):
    return {name: np.array(tensor.read()) for name, tensor in tensors.items()}


def same(here, there):
    assert here.keys() == there.keys()
    for name, array in there.items():
        assert here[name].dtype == array.dtype
        np.testing.assert_array_equal(here[name], array)


def test_what_was_written_is_read(tmp_path):
    write_file(tmp_path / "x.safetensors", given())
    same(read(open_file(tmp_path / "x.safetensors")), ARRAYS)


def test_a_transposed_array_is_written_in_its_own_order(tmp_path):
    write_file(tmp_path / "x.safetensors", given({"t": ARRAYS["single"].T}))
    same(read(open_file(tmp_path / "x.safetensors")), {"t": np.ascontiguousarray(ARRAYS["single"].T)})


def test_the_bytes_are_those_of_the_format(tmp_path):
    """Eight bytes of length, the header padded with spaces to a multiple of eight, the data."""
    write_file(tmp_path / "x.safetensors", given({"a": np.array([1.0, 2.0], np.float32)}))
    data = (tmp_path / "x.safetensors").read_bytes()
    length = int.from_bytes(data[:8], "little")
    assert length % 8 == 0
    assert json.loads(data[8 : 8 + length]) == {
        "__metadata__": {"format": "pt"},
        "a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]},
    }
    assert data[8 + length :] == np.array([1.0, 2.0], "<f4").tobytes()


@pytest.mark.parametrize(("shard_bytes", "files"), [(1 << 20, 1), (64, 2), (1, 5)])
def test_a_folder_in_parts(tmp_path, shard_bytes, files):
    assert len(write_folder(tmp_path, given(), shard_bytes=shard_bytes)) == files
    same(read(open_folder(tmp_path)), ARRAYS)


def test_a_folder_written_again_keeps_nothing_of_before(tmp_path):
    write_folder(tmp_path, given(), shard_bytes=1)
    write_folder(tmp_path, given(), shard_bytes=64)
    assert len(list(tmp_path.glob("*.safetensors"))) == 2
    same(read(open_folder(tmp_path)), ARRAYS)
    write_folder(tmp_path, given({"single": ARRAYS["single"]}), shard_bytes=1 << 20)
    assert [file.name for file in tmp_path.iterdir()] == ["model.safetensors"]
    same(read(open_folder(tmp_path)), {"single": ARRAYS["single"]})


def test_a_file_cut_short_is_refused_with_the_byte_counts(tmp_path):
    file = tmp_path / "x.safetensors"
    write_file(file, given())
    whole = file.read_bytes()
    file.write_bytes(whole[:-10])
    with pytest.raises(
        ConfigError, match=f"cut short: {len(whole) - 10} bytes of {len(whole)}; copy or download it again"
    ):
        open_file(file)
    for size in (0, 5, 50):
        file.write_bytes(whole[:size])
        with pytest.raises(ConfigError, match=f"x.safetensors: cut short: {size} bytes"):
            open_file(file)


def header(text):
    data = json.dumps(text).encode() if not isinstance(text, bytes) else text
    return len(data).to_bytes(8, "little") + data + bytes(64)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"PK\x03\x04 this is a zip file, not tensors", "not a safetensors file: its header would be"),
        (header(b"not json"), "its header cannot be read"),
        (header({"a": {"dtype": "F32"}}), "its header cannot be read: KeyError"),
        (header([1]), "its header cannot be read"),
        (
            header({"a": {"dtype": "F8_E4M3", "shape": [4], "data_offsets": [0, 4]}}),
            "a is of type F8_E4M3; supported are BF16",
        ),
        (
            header({"a": {"dtype": "F32", "shape": [4], "data_offsets": [0, 4]}}),
            "a has 4 bytes; its shape and type make 16",
        ),
    ],
)
def test_other_files_are_refused(tmp_path, content, message):
    (tmp_path / "x.safetensors").write_bytes(content)
    with pytest.raises(ConfigError, match=message):
        open_file(tmp_path / "x.safetensors")


def test_a_folder_without_weights_is_refused(tmp_path):
    with pytest.raises(ConfigError, match=r"has neither model.safetensors nor model.safetensors.index.json$"):
        open_folder(tmp_path)
    (tmp_path / "pytorch_model.bin").write_bytes(b"")
    with pytest.raises(ConfigError, match="; save pytorch_model.bin again as safetensors"):
        open_folder(tmp_path)


def test_an_index_must_be_true(tmp_path):
    files = write_folder(tmp_path, given(), shard_bytes=64)
    index = tmp_path / "model.safetensors.index.json"
    listed = json.loads(index.read_text())
    files[1].rename(tmp_path / "aside")
    with pytest.raises(ConfigError, match=f"names {files[1].name}, which are missing; is the download complete"):
        open_folder(tmp_path)
    (tmp_path / "aside").rename(files[1])
    listed["weight_map"]["ghost"] = files[0].name
    index.write_text(json.dumps(listed))
    with pytest.raises(ConfigError, match="names tensors that are in no file: ghost"):
        open_folder(tmp_path)
    index.write_text("{}")
    with pytest.raises(ConfigError, match="has no readable 'weight_map'"):
        open_folder(tmp_path)


def test_a_file_that_becomes_shorter_after_it_was_opened_is_refused(tmp_path):
    file = tmp_path / "x.safetensors"
    write_file(file, given())
    tensors = open_file(file)
    os.truncate(file, file.stat().st_size - 8)
    with pytest.raises(ConfigError, match="x.safetensors: has become shorter while it was read"):
        tensors["double"].read()


@attrs.frozen(eq=False)
class Unreadable(Given):
    """An array that cannot be read, as if the disk were full or the device's memory."""

    def read(self):
        raise OSError("No space left on device")


def test_a_file_that_cannot_be_finished_leaves_nothing(tmp_path):
    write_file(tmp_path / "x.safetensors", given())
    with pytest.raises(OSError, match="No space left"):
        write_file(tmp_path / "x.safetensors", given() | {"last": Unreadable(ARRAYS["single"])})
    assert [file.name for file in tmp_path.iterdir()] == ["x.safetensors"]
    same(read(open_file(tmp_path / "x.safetensors")), ARRAYS)

"""Files of blocks: what is read is what was written, and a damaged one is one line."""

import pytest

from dovetail.errors import RunError
from dovetail.run.blocks import block, blocks

WRITTEN = [({"n": 1, "text": "h\u00e9llo"}, b"two\nlines\n"), ({"n": 2}, b""), ({}, bytes(range(256)))]


def write(tmp_path, content):
    path = tmp_path / "messages.bin"
    path.write_bytes(content)
    return path


def test_what_is_read_is_what_was_written(tmp_path):
    assert list(blocks(write(tmp_path, b"".join(block(*each) for each in WRITTEN)))) == WRITTEN


@pytest.mark.parametrize("size", [b"-1", b"", b"x", b"2", b"4", b"10", "٣".encode(), b"9" * 14, b"9" * 5000])
def test_a_damaged_size_is_a_block_that_is_not_whole(size, tmp_path):
    """It says how much to read, so it may not ask for more than there is, or have more digits than Python converts."""
    checksum, _, rest = block({"n": 2}, b"abc").split(b" ", 2)
    read = blocks(write(tmp_path, block({"n": 1}, b"") + b" ".join((checksum, size, rest))))
    assert next(read) == ({"n": 1}, b"")
    with pytest.raises(RunError, match=r"messages\.bin': block 2 is not whole"):
        next(read)

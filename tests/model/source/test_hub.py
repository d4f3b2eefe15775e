"""Models on the hub: downloaded once, pinned for a run, and in one line what to do when they cannot be had."""

import io
import sys

import pytest
from flax import nnx
from tests.model.gguf_files import write_fixture
from tests.model.source.conftest import forget
from tests.tiny_folder import write

from dovetail.errors import ConfigError
from dovetail.run.sources import SOURCES, kept_in
from dovetail_model.adapter.lora import LoRA, linears
from dovetail_model.adapter.peft import Peft
from dovetail_model.huggingface.export import save_adapter
from dovetail_model.huggingface.safetensors import open_file, write_folder
from dovetail_model.model.pretrained import Pretrained
from dovetail_model.tokenizer.huggingface import HuggingFace

NAME = "acme/tiny"


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models") / "tiny"
    write(folder)
    return {file.name: file.read_bytes() for file in folder.iterdir()}


def make(path=NAME, vocab=32):
    return Pretrained(path=path).make(vocab, rngs=nnx.Rngs(0))


def test_a_model_and_its_tokenizer_are_downloaded_file_by_file_and_once(hub, files):
    hub.add(NAME, {**files, "pytorch_model.bin": b"large"})
    tokenizer = HuggingFace(path=NAME).make([])
    assert not any("safetensors" in path for path in hub.asked)
    model = make(vocab=tokenizer.vocab_size)
    assert model.width == 32
    assert not any("pytorch_model" in path for path in hub.asked)
    hub.asked.clear()
    forget()
    assert make(vocab=tokenizer.vocab_size).spec == model.spec
    assert [path for path in hub.asked if "resolve" in path and path.startswith("GET")] == []


@pytest.mark.parametrize("shard_bytes", [1 << 30, 8000])
def test_weights_that_are_there_twice_are_downloaded_once(shard_bytes, hub, files, tmp_path):
    """Mistral's repositories have all weights in `consolidated.safetensors` too, and others in folders of their own."""
    write_folder(tmp_path, dict(_tensors(files, tmp_path)), shard_bytes=shard_bytes)
    weights = {file.name: file.read_bytes() for file in tmp_path.iterdir() if file.name.startswith("model")}
    others = {name: files[name] for name in files if not name.startswith("model")}
    hub.add(NAME, others | weights | {"consolidated.safetensors": b"large", "onnx/model.safetensors": b"large"})
    assert make().width == 32
    downloaded = {path.rpartition("/")[2] for path in hub.asked if path.startswith("GET") and "/resolve/" in path}
    assert downloaded - {"config.json"} == weights.keys()
    assert not any("onnx" in path for path in hub.asked)


def _tensors(files, folder):
    whole = folder / "whole.safetensors"
    whole.write_bytes(files["model.safetensors"])
    return open_file(whole).items()


def test_without_a_network_the_cache_is_enough(hub, files, monkeypatch):
    from huggingface_hub import constants

    hub.add(NAME, files)
    make()
    forget()
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    assert make().width == 32
    with pytest.raises(ConfigError) as error:
        make("acme/other")
    assert str(error.value) == (
        f"'acme/other' is not a folder here nor in the cache '{constants.HF_HUB_CACHE}', and HF_HUB_OFFLINE is set."
        " Where there is a network, `hf download acme/other` fills the cache, which may be copied; or name a folder"
    )


def test_a_hub_that_does_not_answer(hub, monkeypatch):
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")
    with pytest.raises(ConfigError, match="and the hub cannot be reached. Where there is a network, `hf download"):
        make()


def test_what_does_not_exist_is_said_so(hub, files):
    hub.add(NAME, files)
    with pytest.raises(ConfigError) as error:
        make("acme/tinny")
    assert str(error.value) == (
        f"'acme/tinny' is neither a folder here nor a model at {hub.url}/acme/tinny; a private one needs"
        " `hf auth login` or HF_TOKEN"
    )
    with pytest.raises(ConfigError, match="^acme/tiny@v9: the model has no branch, tag or commit 'v9'$"):
        make("acme/tiny@v9")


def test_a_gated_model_says_where_to_ask(hub, files):
    hub.add(NAME, files, gated=True)
    with pytest.raises(ConfigError) as error:
        make()
    assert str(error.value) == (
        f"acme/tiny: access to this model must be asked for at {hub.url}/acme/tiny; then log in with `hf auth login`,"
        " or set HF_TOKEN"
    )


def test_a_token_opens_a_gated_model(hub, files, monkeypatch):
    hub.add(NAME, files, gated=True)
    hub.token = "hf_of_somebody_with_access"
    monkeypatch.setenv("HF_TOKEN", "hf_of_somebody_else")
    with pytest.raises(ConfigError, match="must be asked for"):
        make()
    monkeypatch.setenv("HF_TOKEN", hub.token)
    forget()
    assert make().width == 32


def test_a_download_shows_its_progress_where_somebody_sees_it(hub, files, monkeypatch):
    """Of two bars, one counts files; the terminal gets both, a log or a pipe what the hub's library decides."""
    from huggingface_hub import utils

    utils.enable_progress_bars()  # the fixture switches off what every process begins with
    monkeypatch.setattr(sys, "stderr", shown := Terminal())
    hub.add(NAME, files)
    assert make().width == 32
    assert "Fetching" in shown.getvalue()
    assert "100%" in shown.getvalue()


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_a_run_goes_on_with_the_commit_that_it_began_with(hub, files, tmp_path):
    first = hub.add(NAME, files)
    with kept_in(tmp_path):
        make()
    assert first in (tmp_path / SOURCES).read_text()
    hub.add(
        NAME, {**files, "config.json": files["config.json"].replace(b'"rms_norm_eps": 1e-06', b'"rms_norm_eps": 1e-3')}
    )
    forget()
    assert make().spec.norm_epsilon == 1e-3
    forget()
    with kept_in(tmp_path):
        assert make().spec.norm_epsilon == 1e-6
    forget()
    assert make(f"{NAME}@{first}").spec.norm_epsilon == 1e-6


def test_one_file_of_a_repository(hub, tmp_path):
    data = write_fixture(tmp_path / "m.gguf", "qwen3").read_bytes()
    hub.add("acme/tiny-GGUF", {"m.Q8_0.gguf": data, "m.Q4_0.gguf": b"other"})
    assert make("acme/tiny-GGUF/m.Q8_0.gguf").spec == make(str(tmp_path / "m.gguf")).spec
    assert not any("Q4_0" in path for path in hub.asked)


def test_an_adapter(hub, files, tmp_path):
    hub.add(NAME, files)
    adapted = LoRA(rank=2, modules=r".*\.q_proj").apply(make(), rngs=nnx.Rngs(0))
    save_adapter(tmp_path / "adapter", adapted, base=NAME)
    hub.add("acme/warm", {file.name: file.read_bytes() for file in (tmp_path / "adapter").iterdir()})
    found = Peft(path="acme/warm").apply(make(), rngs=nnx.Rngs(1))
    changed = {name for name, matrix in linears(found).items() if matrix.change is not None}
    assert changed == {name for name in linears(adapted) if name.endswith("q_proj")}
    hub.add("acme/empty", {"README.md": b"nothing"})
    with pytest.raises(
        ConfigError, match=r"adapter\.peft\.path = 'acme/empty': has no adapter_config\.json; an adapter is"
    ):
        Peft(path="acme/empty").apply(make(), rngs=nnx.Rngs(1))


def test_known_models_are_planned_without_asking(hub):
    abstract = Pretrained(path="Qwen/Qwen2.5-0.5B-Instruct").abstract(None)
    assert abstract.vocab_size == 151_936
    assert hub.asked == []

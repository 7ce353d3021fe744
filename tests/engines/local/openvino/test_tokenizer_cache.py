"""Tests the tokenizer that is derived from a GGUF file once and loaded at later starts, with the real library."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import openvino_genai
import pytest

from agent_kernel.core.settings import Settings
from agent_kernel.engines.local.catalog import catalog
from agent_kernel.engines.local.openvino.graph_cache import FILES, MANIFEST, PROPERTIES, StoredTokenizer

pytestmark = pytest.mark.model("tiny")
ROOT = Path(__file__).parents[4]
TEXTS = (
    "Hello, world!",
    "import pandas as pd\n\ndf = pd.read_csv('sales.csv')\nprint(df.groupby('month')['amount'].sum())\n",
    "  indented\n\n\n\ttabs\t and   spaces  ",
    "<|im_start|>user\nWhat is 17 * 23?<|im_end|>\n<|im_start|>assistant\n",
    "Grüße aus Köln — 世界, नमस्ते, 🙂👍🏽 é é",
    "0123456789 3.14159e-10 0xDEADBEEF",
)
OPEN = """
import resource, signal, sys
from pathlib import Path
import openvino_genai
from agent_kernel.engines.local.openvino.graph_cache import StoredTokenizer
path, root, limit = sys.argv[1:]
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (int(limit), int(limit)))
tokenizer = StoredTokenizer(Path(path), Path(root), "1").open(openvino_genai)
print(tokenizer.encode("def f(x): return x", add_special_tokens=False).input_ids.data[0].tolist())
"""


@pytest.fixture(scope="module")
def path() -> Path:
    return catalog.resolve("tiny", Settings.from_env().cache_dir).path


@pytest.fixture(scope="module")
def parsed(path: Path) -> Any:
    return openvino_genai.Tokenizer(str(path), **PROPERTIES)


@pytest.fixture(scope="module")
def stored(path: Path, tmp_path_factory: pytest.TempPathFactory) -> StoredTokenizer:
    made = StoredTokenizer(path, tmp_path_factory.mktemp("cache") / "openvino", "1")
    made.open(openvino_genai)
    return made


@pytest.fixture
def times(stored: StoredTokenizer) -> dict[str, int]:
    return modification_times(stored)


def modification_times(stored: StoredTokenizer) -> dict[str, int]:
    return {name: (stored.directory / name).stat().st_mtime_ns for name in (*FILES, MANIFEST)}


def ids(tokenizer: Any, text: str) -> list[int]:
    found: list[int] = tokenizer.encode(text, add_special_tokens=False).input_ids.data[0].tolist()
    return found


def assert_same(tokenizer: Any, parsed: Any) -> None:
    for text in TEXTS:
        assert ids(tokenizer, text) == ids(parsed, text)
        for skip in (True, False):
            assert tokenizer.decode(ids(parsed, text), skip) == parsed.decode(ids(parsed, text), skip)
    assert tokenizer.get_vocab() == parsed.get_vocab()
    assert tokenizer.get_eos_token_id() == parsed.get_eos_token_id()
    assert tokenizer.get_original_chat_template() == parsed.get_original_chat_template()
    chat = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}]
    assert tokenizer.apply_chat_template(chat, True) == parsed.apply_chat_template(chat, True)


def test_the_stored_tokenizer_gives_the_same_tokens_as_the_model_file(
    stored: StoredTokenizer, parsed: Any, times: dict[str, int]
) -> None:
    assert_same(stored.open(openvino_genai), parsed)
    assert modification_times(stored) == times, "the second start derives nothing"
    assert list(stored.root.iterdir()) == [stored.directory]


def test_a_damaged_tokenizer_is_derived_again(stored: StoredTokenizer, parsed: Any) -> None:
    source = json.loads((stored.directory / MANIFEST).read_text())["source"]
    for name in (*FILES, MANIFEST):
        content = (stored.directory / name).read_bytes()
        (stored.directory / name).write_bytes(content[:-1])
        assert not stored._is_intact(source), name
        (stored.directory / name).write_bytes(content)
    assert stored._is_intact(source)

    (stored.directory / FILES[1]).write_bytes(b"")
    assert ids(stored.open(openvino_genai), TEXTS[1]) == ids(parsed, TEXTS[1])
    assert stored._is_intact(source)


def test_a_tokenizer_of_another_vocabulary_is_derived_again(stored: StoredTokenizer, times: dict[str, int]) -> None:
    manifest = json.loads((stored.directory / MANIFEST).read_text())
    (stored.directory / MANIFEST).write_text(json.dumps(manifest | {"source": "0" * 64}))

    stored.open(openvino_genai)

    assert json.loads((stored.directory / MANIFEST).read_text())["source"] == manifest["source"]
    assert modification_times(stored)[FILES[0]] != times[FILES[0]]


def test_a_cache_that_cannot_be_written_costs_time_only(path: Path, parsed: Any, tmp_path: Path) -> None:
    (tmp_path / "file").touch()

    tokenizer = StoredTokenizer(path, tmp_path / "file" / "openvino", "1").open(openvino_genai)

    assert ids(tokenizer, TEXTS[1]) == ids(parsed, TEXTS[1])


def opening(path: Path, root: Path, limit: int) -> subprocess.Popen[str]:
    """Open the tokenizer in a process that cannot write files of more than ``limit`` bytes."""
    command = [sys.executable, "-c", OPEN, str(path), str(root), str(limit)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT, env={**os.environ})


def test_a_full_disk_stores_nothing_and_changes_no_token(path: Path, parsed: Any, tmp_path: Path) -> None:
    with opening(path, tmp_path, 100_000) as process:
        out, _ = process.communicate(timeout=120)

    assert process.returncode == 0
    assert json.loads(out) == ids(parsed, "def f(x): return x")
    assert list(tmp_path.iterdir()) == []


def test_two_processes_store_one_tokenizer(path: Path, parsed: Any, tmp_path: Path) -> None:
    with opening(path, tmp_path, 1 << 30) as one, opening(path, tmp_path, 1 << 30) as other:
        outs = [process.communicate(timeout=120)[0] for process in (one, other)]

    assert [json.loads(out) for out in outs] == [ids(parsed, "def f(x): return x")] * 2
    made = StoredTokenizer(path, tmp_path, "1")
    assert list(tmp_path.iterdir()) == [made.directory]
    assert made._is_intact(json.loads((made.directory / MANIFEST).read_text())["source"])

"""Writes models of random weights as their library saves them: ``python tiny_models.py KIND DIRECTORY``. All but two,
which have the shape of known models to measure a GPU, have a few thousand weights.

Runs in an interpreter that has torch. The answers mean nothing; tests compare how they change and what is reused. The
vocabulary is bytes, so that any text can be encoded.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import torch
import transformers
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

SPECIAL = ("<|end|>", "<|start|>", "<image>", "<fake>", "<global>", "<boi>", "<eoi>", "<video>")
END, START, IMAGE, FAKE, GLOBAL, BOI, EOI, VIDEO = SPECIAL
CONTEXT = 8192
WINDOW: dict[str, Any] = {"layer_types": ["sliding_attention", "full_attention"], "sliding_window": 32}
TEMPLATE = (
    "{% for message in messages %}<|start|>{{ message['role'] }}\n"
    "{% if message['content'] is string %}{{ message['content'] }}{% else %}"
    "{% for part in message['content'] %}{% if part['type'] == 'image' %}<image>{% else %}{{ part['text'] }}{% endif %}"
    "{% endfor %}{% endif %}<|end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|start|>assistant\n{% endif %}"
)


def tokenizer(**named: str) -> Any:
    """Return a tokenizer. ``named`` are extra attributes by which processors find their special tokens."""
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {token: at for at, token in enumerate([*SPECIAL, *letters])}
    bytes_only = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    bytes_only.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bytes_only.decoder = decoders.ByteLevel()
    made = transformers.PreTrainedTokenizerFast(
        tokenizer_object=bytes_only,
        eos_token=END,
        pad_token=END,
        additional_special_tokens=list(SPECIAL[1:]),
        extra_special_tokens=named,
        model_max_length=CONTEXT,
        clean_up_tokenization_spaces=False,
    )
    made.chat_template = TEMPLATE
    return made


def ids(words: Any) -> dict[str, Any]:
    end = words.convert_tokens_to_ids(END)
    return {"vocab_size": len(words), "eos_token_id": end, "pad_token_id": end, "bos_token_id": end}


def decoder_sizes(**more: Any) -> dict[str, Any]:
    sizes = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2}
    return sizes | {"num_key_value_heads": 1, "head_dim": 16, "max_position_embeddings": CONTEXT} | more


def eyes(**more: Any) -> dict[str, Any]:
    sizes = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2}
    return sizes | {"image_size": 32, "patch_size": 8} | more


def llama(directory: Path) -> None:
    words = tokenizer()
    config = transformers.LlamaConfig(**decoder_sizes(), **ids(words))
    save(directory, transformers.LlamaForCausalLM(config), words)


def sliding(directory: Path) -> None:
    """Write a model in which one of two layers attends to the last 32 tokens only."""
    words = tokenizer()
    config = transformers.Gemma3TextConfig(**decoder_sizes(**WINDOW), **ids(words))
    save(directory, transformers.Gemma3ForCausalLM(config), words)


def recurrent(directory: Path) -> None:
    """Write a model whose layers have a recurrent state in place of keys and values; the state cannot be
    rolled back.
    """
    words = tokenizer()
    config = transformers.MambaConfig(hidden_size=32, num_hidden_layers=2, state_size=4, **ids(words))
    save(directory, transformers.MambaForCausalLM(config), words)


def llava(directory: Path) -> None:
    words = tokenizer(image_token=IMAGE)
    config = transformers.LlavaConfig(
        vision_config=transformers.CLIPVisionConfig(**eyes()),
        text_config=transformers.LlamaConfig(**decoder_sizes(), **ids(words)),
        image_token_id=words.convert_tokens_to_ids(IMAGE),
        image_seq_length=16,
    )
    pixels = transformers.CLIPImageProcessorPil(size={"shortest_edge": 32}, crop_size={"height": 32, "width": 32})
    processor = transformers.LlavaProcessor(
        pixels,
        words,
        patch_size=8,
        vision_feature_select_strategy="default",
        num_additional_image_tokens=1,
        image_token=IMAGE,
        chat_template=TEMPLATE,
    )
    save(directory, transformers.LlavaForConditionalGeneration(config), processor)


def idefics3(directory: Path) -> None:
    """Write a model that encodes one image as several runs of image tokens."""
    words = tokenizer(image_token=IMAGE, fake_image_token=FAKE, global_image_token=GLOBAL, end_of_utterance_token=END)
    pixels = transformers.Idefics3ImageProcessorPil(size={"longest_edge": 64}, max_image_size={"longest_edge": 32})
    # It adds tokens of its own to the vocabulary.
    processor = transformers.Idefics3Processor(pixels, words, image_seq_len=4, chat_template=TEMPLATE)
    config = transformers.Idefics3Config(
        vision_config=transformers.models.idefics3.Idefics3VisionConfig(**eyes()),
        text_config=transformers.LlamaConfig(**decoder_sizes(), **ids(words)),
        image_token_id=words.convert_tokens_to_ids(IMAGE),
        scale_factor=2,
    )
    save(directory, transformers.Idefics3ForConditionalGeneration(config), processor)


def gemma3(directory: Path) -> None:
    """Write a vision model in which one of two layers has a window of 32 tokens, and tokens of one image attend to each
    other in both directions.
    """
    words = tokenizer(image_token=IMAGE, boi_token=BOI, eoi_token=EOI)
    config = transformers.Gemma3Config(
        vision_config=transformers.SiglipVisionConfig(**eyes(vision_use_head=False)),
        text_config=transformers.Gemma3TextConfig(**decoder_sizes(**WINDOW), **ids(words)),
        mm_tokens_per_image=4,
        image_token_id=words.convert_tokens_to_ids(IMAGE),
        boi_token_id=words.convert_tokens_to_ids(BOI),
        eoi_token_id=words.convert_tokens_to_ids(EOI),
    )
    pixels = transformers.Gemma3ImageProcessorPil(size={"height": 32, "width": 32})
    processor = transformers.Gemma3Processor(
        pixels, words, image_seq_length=4, chat_template=TEMPLATE.replace("<image>", BOI)
    )
    model = transformers.Gemma3ForConditionalGeneration(config)
    torch.nn.init.normal_(model.model.multi_modal_projector.mm_input_projection_weight)  # it begins as zeros: blind
    save(directory, model, processor)


def qwen2_vl(directory: Path) -> None:
    """Write a model whose positions count rows and columns of a picture. It is saved by hand because its processor
    requires torchvision.
    """
    words = tokenizer(image_token=IMAGE, video_token=VIDEO)
    words.chat_template = TEMPLATE.replace(IMAGE, f"{BOI}{IMAGE}{EOI}")  # without, neighbours would be one picture
    rotary = {"rope_type": "default", "mrope_section": [2, 3, 3], "rope_theta": 10_000.0}
    config = transformers.Qwen2VLConfig(
        vision_config={"depth": 2, "embed_dim": 32, "hidden_size": 32, "num_heads": 2, "patch_size": 8, "mlp_ratio": 2},
        text_config={**decoder_sizes(), **ids(words), "rope_parameters": rotary},
        image_token_id=words.convert_tokens_to_ids(IMAGE),
        video_token_id=words.convert_tokens_to_ids(VIDEO),
        vision_start_token_id=words.convert_tokens_to_ids(BOI),
        vision_end_token_id=words.convert_tokens_to_ids(EOI),
    )
    save(directory, transformers.Qwen2VLForConditionalGeneration(config), words)
    transformers.Qwen2VLImageProcessorPil(patch_size=8, min_pixels=32 * 32, max_pixels=64 * 64).save_pretrained(
        directory
    )
    (directory / "processor_config.json").write_text('{"processor_class": "Qwen2VLProcessor"}', encoding="utf-8")


def qwen_1_5b(directory: Path) -> None:
    """Write a model in the shape of Qwen2.5-Coder-1.5B: 3 GB in bfloat16."""
    _qwen(directory, hidden_size=1536, intermediate_size=8960, num_hidden_layers=28, num_attention_heads=12)


def qwen_7b(directory: Path) -> None:
    """Write a model in the shape of Qwen2.5-Coder-7B: 15 GB in bfloat16."""
    sizes = {"num_hidden_layers": 28, "num_attention_heads": 28, "num_key_value_heads": 4}
    _qwen(directory, hidden_size=3584, intermediate_size=18944, tie_word_embeddings=False, **sizes)


def _qwen(directory: Path, **sizes: Any) -> None:
    """Write a Qwen2 model with ``sizes``, whose numbers are those of its published config.json."""
    words = tokenizer()
    shape = {"vocab_size": 151_936, "num_key_value_heads": 2, "tie_word_embeddings": True} | sizes
    config = transformers.Qwen2Config(**(ids(words) | shape), max_position_embeddings=32_768)
    torch.set_default_dtype(torch.bfloat16)
    with torch.device("cuda" if torch.cuda.is_available() else "cpu"):
        model = transformers.Qwen2ForCausalLM(config)
    model.save_pretrained(directory)
    words.save_pretrained(directory)


def save(directory: Path, model: Any, words: Any) -> None:
    # Random weights as they are initialised make all tokens about equally likely; wider ones make an answer's choice
    # survive the rounding of another prefill.
    with torch.no_grad():
        for weight in model.parameters():
            weight.mul_(3.0)
    model.save_pretrained(directory)
    words.save_pretrained(directory)


KINDS: Mapping[str, Callable[[Path], None]] = MappingProxyType(
    {kind.__name__: kind for kind in (llama, sliding, recurrent, llava, idefics3, gemma3, qwen2_vl, qwen_1_5b, qwen_7b)}
)

if __name__ == "__main__":
    torch.manual_seed(7)
    KINDS[sys.argv[1]](Path(sys.argv[2]))

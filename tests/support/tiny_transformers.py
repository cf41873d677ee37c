"""Tiny seeded models of transformers of each kind that can be used, written as folders that `transformers:` reads."""

import io
import json
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import open_clip
import pytest
import sentencepiece
import torch
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors, trainers
from torch import Tensor

transformers = pytest.importorskip(
    "transformers", "5.0", reason="tokenizers are written as version 5 of transformers does"
)

__all__ = ["KINDS", "POSITIONS", "load", "native_images", "native_text", "native_text_of", "preparation", "write"]

KINDS = ("clip", "siglip", "siglip2", "altclip", "chinese_clip")
CLASSES = {
    "clip": "CLIPModel",
    "siglip": "SiglipModel",
    "siglip2": "Siglip2Model",
    "altclip": "AltCLIPModel",
    "chinese_clip": "ChineseCLIPModel",
}
WORDS = (
    "a photo of the art my drawing dog cat fire truck three toed sloth very long name thing that nobody has ever seen "
    "number itap bad origami large in video game small missile . - , object picture 0 1 2 3 4 5 6 7 8 9"
).split()

LETTERS = "abcdefghijklmnopqrstuvwxyz.,-"

SHARED = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 48}
VISION = {**SHARED, "num_hidden_layers": 4, "image_size": 32, "patch_size": 16}
POSITIONS = 40


def write(folder: Path, kind: str, seed: int = 3, vocabulary: str = "", **vision: Any) -> Path:
    """Write a model with seeded random weights, its tokenizer and its preparation of pictures; return the folder.

    The tokenizer may be that of another kind.
    """
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer = _tokenizer(vocabulary or kind)
    tokenizer.save_pretrained(folder)
    text: dict[str, Any] = {**SHARED, "vocab_size": len(tokenizer), "max_position_embeddings": POSITIONS}
    text |= {f"{end}_token_id": getattr(tokenizer, f"{end}_token_id") or 0 for end in ("pad", "bos", "eos")}
    image = {**VISION, **vision}
    if kind == "siglip2":
        image = {key: value for key, value in image.items() if key != "image_size"} | {"num_patches": 9}
    if kind == "altclip":
        text["project_dim"] = 24
        text["max_position_embeddings"] = POSITIONS + 2
    if kind in ("siglip", "siglip2"):
        text["projection_size"] = 32
    more = {} if kind in ("siglip", "siglip2") else {"projection_dim": 24}
    create = getattr(transformers, CLASSES[kind])
    torch.manual_seed(seed)
    model = create(create.config_class(text_config=text, vision_config=image, **more)).eval()
    for parameter in model.parameters():  # so large that the features of different inputs differ, as in a trained one
        if parameter.ndim > 1:
            torch.nn.init.normal_(parameter, std=0.15)
    with torch.no_grad():
        model.logit_scale.fill_(2.5)
        if hasattr(model, "logit_bias"):
            model.logit_bias.fill_(-3.0)
    model.save_pretrained(folder)
    (folder / "preprocessor_config.json").write_text(json.dumps(preparation(kind)))
    return folder


def preparation(kind: str) -> dict[str, Any]:
    """Return the preparation of pictures as the library writes it."""
    if kind == "siglip2":
        half = {"image_mean": [0.5] * 3, "image_std": [0.5] * 3}
        return {**half, "patch_size": 16, "max_num_patches": 9, "resample": 2, "do_normalize": True}
    if kind == "siglip":
        half = {"image_mean": [0.5] * 3, "image_std": [0.5] * 3}
        return {**half, "size": {"height": 32, "width": 32}, "resample": 3, "do_normalize": True}
    clip = {"image_mean": [0.48145466, 0.4578275, 0.40821073], "image_std": [0.26862954, 0.26130258, 0.27577711]}
    crop = {"height": 32, "width": 32}
    return {**clip, "size": {"shortest_edge": 32}, "crop_size": crop, "do_center_crop": True, "resample": 3}


def _tokenizer(kind: str) -> Any:
    """Return a tokenizer of the class that models of a kind have, with a small vocabulary (CLIP's is its own)."""
    options = {"model_max_length": POSITIONS, "padding_side": "right"}
    if kind == "clip":
        own = open_clip.SimpleTokenizer()
        names = {"<start_of_text>": "<|startoftext|>", "<end_of_text>": "<|endoftext|>"}
        vocabulary = {names.get(token, token): index for token, index in own.encoder.items()}
        merges = [pair for pair, _ in sorted(own.bpe_ranks.items(), key=lambda item: item[1])]
        return transformers.CLIPTokenizer(vocab=vocabulary, merges=merges, **options)
    if kind == "siglip":
        return _sentencepiece(options)
    if kind == "siglip2":
        return _gemma(options)
    if kind == "altclip":
        special = [(token, 0.0) for token in ("<s>", "<pad>", "</s>", "<unk>")]
        pieces = [*((f"▁{word}", -2.0) for word in WORDS), *((letter, -5.0) for letter in [*LETTERS, "▁"])]
        return transformers.XLMRobertaTokenizer(vocab=[*special, *pieces, ("<mask>", 0.0)], **options)
    tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS]
    return transformers.BertTokenizer(vocab={token: index for index, token in enumerate(tokens)}, **options)


def _sentencepiece(options: dict[str, Any]) -> Any:
    """Return SigLIP's tokenizer, which ends prompts with its padding and reads no punctuation."""
    trained, sentences = io.BytesIO(), [" ".join(WORDS[i:] + WORDS[:i]) for i in range(len(WORDS))]
    numbers = {"pad_id": -1, "bos_id": -1, "unk_id": 0, "eos_id": 1}
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(sentences * 3),
        model_writer=trained,
        vocab_size=150,
        hard_vocab_limit=False,
        minloglevel=2,
        **numbers,
    )
    with TemporaryDirectory() as folder:
        Path(folder, "spiece.model").write_bytes(trained.getvalue())
        return transformers.SiglipTokenizer(str(Path(folder, "spiece.model")), **options)


def _gemma(options: dict[str, Any]) -> Any:
    """Return SigLIP 2's tokenizer, with the end token that the released files add."""
    trained = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True))
    trained.normalizer = normalizers.Replace(" ", "▁")
    trained.pre_tokenizer = pre_tokenizers.Split(pattern="▁", behavior="merged_with_next")
    special = ["<pad>", "<eos>", "<bos>", "<unk>", "<mask>"]
    trainer = trainers.BpeTrainer(vocab_size=250, special_tokens=special, show_progress=False)
    trained.train_from_iterator([" ".join(WORDS[i:] + WORDS[:i]) for i in range(len(WORDS))], trainer)
    model = json.loads(trained.to_str())["model"]
    merges = [tuple(pair) for pair in model["merges"]]
    tokenizer = transformers.Siglip2Tokenizer(vocab=model["vocab"], merges=merges, **options)
    tokenizer.backend_tokenizer.post_processor = processors.TemplateProcessing(
        single="$A <eos>", special_tokens=[("<eos>", 1)]
    )
    return tokenizer


def load(folder: Path) -> Any:
    """Return the model as the library itself loads it."""
    config = json.loads((folder / "config.json").read_text())
    return getattr(transformers, CLASSES[config["model_type"]]).from_pretrained(folder, dtype=torch.float32).eval()


def native_text(folder: Path, texts: list[str] | tuple[str, ...]) -> Tensor:
    """Return the library's own unit-norm text features, of its own tokenizer's tokens."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(str(folder))
    return native_text_of([tokenizer(text)["input_ids"] for text in texts], folder)


def native_text_of(rows: list[list[int]], folder: Path) -> Tensor:
    """Return the library's own unit-norm text features of tokens, which it fills up as its tokenizer says."""
    model, tokenizer = load(folder), transformers.AutoTokenizer.from_pretrained(str(folder))
    full = model.config.model_type.startswith("siglip")  # trained so, and without a mask
    length = {"padding": "max_length", "max_length": POSITIONS} if full else {"padding": True}
    inputs = tokenizer.pad({"input_ids": rows}, **length, return_tensors="pt")
    given = {"input_ids": inputs["input_ids"]}
    if not full:
        given["attention_mask"] = inputs["attention_mask"]
    with torch.no_grad():
        return _unit(model.get_text_features(**given))


def native_images(folder: Path, pictures: list[Any]) -> Tensor:
    """Return the library's own unit-norm features of pictures that are square already, of its own preparation."""
    model, processor = load(folder), transformers.AutoImageProcessor.from_pretrained(str(folder))
    with torch.no_grad():
        return _unit(model.get_image_features(**processor(images=pictures, return_tensors="pt")))


def _unit(features: Any) -> Tensor:
    features = features if isinstance(features, Tensor) else features.pooler_output
    return torch.nn.functional.normalize(features, dim=-1)

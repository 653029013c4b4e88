#!/usr/bin/env bash
# Expected: transformers reads texts as the folder's tokenizer.json does, whose pre-tokenizer separates digits.
# Seen with transformers 5.23.0: where tokenizer_config.json names GPT2Tokenizer, as SmolLM's does, the class builds its
#   own byte-level pre-tokenizer, the step Digits is gone, and digits of a number that have a merge are one token.
# Output seen: the file 2 tokens, transformers 1
# Why it matters: ids that are made from tokenizer.json alone aren't those that AutoTokenizer gives the same model.
# Source: transformers/models/gpt2/tokenization_gpt2.py; huggingface/transformers, tokenizers of version 5.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check transformers==5.23.0 tokenizers==0.23.3
seen=$("$folder/venv/bin/python" - "$folder/model" <<'PYTHON'
import json
import pathlib
import sys

from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import AutoTokenizer

folder = pathlib.Path(sys.argv[1])
folder.mkdir()
letters = sorted(pre_tokenizers.ByteLevel.alphabet())
words = {letter: i for i, letter in enumerate([*letters, "12", "<|endoftext|>"])}
file = Tokenizer(models.BPE(words, [("1", "2")]))
digits = pre_tokenizers.Digits(individual_digits=True)
file.pre_tokenizer = pre_tokenizers.Sequence([digits, pre_tokenizers.ByteLevel(add_prefix_space=False)])
file.save(str(folder / "tokenizer.json"))
(folder / "config.json").write_text(json.dumps({"model_type": "llama"}))
(folder / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "GPT2Tokenizer"}))
read = AutoTokenizer.from_pretrained(folder)
ids = read("12")["input_ids"]
print(f"the file {len(file.encode('12').ids)} tokens, transformers {len(ids)}")
PYTHON
)
echo "$seen"
[ "$seen" = "the file 2 tokens, transformers 1" ]

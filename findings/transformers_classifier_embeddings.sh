#!/usr/bin/env bash
# Expected: a language model that classifies texts gives a padded text the same logits by its token ids and by the
#   embeddings of these ids, with the same attention mask: those of its last token that the mask shows.
# Seen with transformers 5.23.0, PyTorch 2.13.0: by ids they are those at the last real token; by embeddings those at the
#   last position, which is padding. The attention mask isn't asked.
# Output seen: by ids: as without padding; by embeddings: read at position 4 of 0 to 4
# Why it matters: attribution, prompt tuning and every other method that begins at embeddings explains another number as
#   soon as texts are padded on the right.
# Source: transformers/modeling_layers.py, GenericForSequenceClassification.forward, looks for the padding token's id, and
#   takes the last position where there are no ids.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check torch==2.13.0 transformers==5.23.0 numpy==2.4.6
seen=$("$folder/venv/bin/python" - 2> /dev/null <<'PYTHON'
import torch
import transformers

torch.manual_seed(0)
sizes = {"vocab_size": 50, "hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2, "head_dim": 8}
settings = transformers.Qwen3Config(**sizes, num_attention_heads=2, num_key_value_heads=2, pad_token_id=0, num_labels=3)
model = transformers.Qwen3ForSequenceClassification(settings).eval()
ids, mask = torch.tensor([[3, 4, 5, 0, 0]]), torch.tensor([[1, 1, 1, 0, 0]])
with torch.no_grad():
    unpadded = model(input_ids=ids[:, :3]).logits
    by_ids = model(input_ids=ids, attention_mask=mask).logits
    embeddings = model.get_input_embeddings()(ids)
    by_embeddings = model(inputs_embeds=embeddings, attention_mask=mask).logits
    everywhere = model.score(model.model(inputs_embeds=embeddings, attention_mask=mask).last_hidden_state)[0]
same = torch.allclose(by_ids, unpadded, atol=1e-5)
place = next(k for k in range(5) if torch.allclose(everywhere[k], by_embeddings[0], atol=1e-5))
print(f"by ids: {'as' if same else 'not as'} without padding; by embeddings: read at position {place} of 0 to 4")
PYTHON
)
echo "$seen"
[ "$seen" = "by ids: as without padding; by embeddings: read at position 4 of 0 to 4" ]

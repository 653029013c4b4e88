"""Chat templates of every kind that checkpoints bring, and chats, for both implementations."""

from pathlib import Path

KEPT = Path(__file__).parent / "chat_texts.json"
"""The reference's texts with the tokens of a Llama (`python -m tests.parity.goldens`)."""

CHATML = """{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}
{{ '<|im_start|>system\\nYou are helpful.<|im_end|>\\n' }}{% endif %}
{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n' }}{% endfor %}
{% if add_generation_prompt %}
{{ '<|im_start|>assistant\\n' }}
{% endif %}"""

LLAMA2 = """{% if messages[0]['role'] == 'system' %}{% set loop_messages = messages[1:] %}
{% set system_message = messages[0]['content'] %}{% else %}{% set loop_messages = messages %}
{% set system_message = false %}{% endif %}{% for message in loop_messages %}
{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}
{{ raise_exception('Conversation roles must alternate user/assistant/user/assistant/...') }}{% endif %}
{% if loop.index0 == 0 and system_message != false %}
{% set content = '<<SYS>>\\n' + system_message + '\\n<</SYS>>\\n\\n' + message['content'] %}
{% else %}{% set content = message['content'] %}{% endif %}{% if message['role'] == 'user' %}
{{ bos_token + '[INST] ' + content.strip() + ' [/INST]' }}{% elif message['role'] == 'assistant' %}
{{ ' ' + content.strip() + ' ' + eos_token }}{% endif %}{% endfor %}"""

LOOPS = """{{- bos_token }}
{%- set ns = namespace(count=0, last='') %}
{%- for message in messages %}
    {%- if message.content is none or message.content == '' %}{% continue %}{% endif %}
    {%- set ns.count = ns.count + 1 %}
    {%- set ns.last = message.role %}
    {{- '<' ~ message.role ~ '>' }}{% generation %}{{ message.content | trim }}{% endgeneration %}
    {%- if ns.count > 3 %}{% break %}{% endif %}
{%- endfor %}
{{- ns.last }} {{ {'é': [1, 2.5, none, true], 'a': '<b>'} | tojson }} {{ dict(a=1) | tojson(indent=1) }}
{%- if tools is none and documents is none %} none{% endif %}
{%- if add_generation_prompt %}<assistant>{% endif %}"""

REASONING = """{% for m in messages %}[{{ m.role }}{% if m.thinking is defined %}
 thinks {{ m.reasoning_content }}{% endif %}
{% if m.content is string %}{{ m.content }}{% else %}{% for p in m.content %}{{ p.text }}{% endfor %}{% endif %}]
{% endfor %}"""

TEMPLATES = {"chatml": CHATML, "llama2": LLAMA2, "loops": LOOPS, "reasoning": REASONING}

SYSTEM, USER = {"role": "system", "content": "Be <brief> & kind."}, {"role": "user", "content": " hello é "}
ANSWER, BEGUN = {"role": "assistant", "content": "Hi there. "}, {"role": "assistant", "content": "Well,"}
CHATS = {
    "a question": [USER],
    "a system's words": [SYSTEM, USER],
    "several turns": [SYSTEM, USER, ANSWER, USER],
    "an answer begun": [USER, BEGUN],
    "an answer begun, with a space": [USER, ANSWER],
    "absent values": [USER | {"tool_calls": None, "name": None}],
    "thoughts": [USER, ANSWER | {"thinking": "Hm."}, USER],
    "two questions": [USER, USER],
    "parts": [{"role": "user", "content": [{"type": "text", "text": "hello"}]}],
}


def question(messages):
    """Return what pipelines of transformers ask a template for: a last message of the assistant goes on."""
    begun = messages[-1]["role"] == "assistant"
    return {"add_generation_prompt": not begun, "continue_final_message": begun}

"""Chat templates in the variants of the model families, each as short as possible."""

HERMES = """{%- if tools %}<|im_start|>system
{% if messages[0].role == 'system' %}{{ messages[0].content }}
{% endif %}Tools:{% for tool in tools %}
{{ tool | tojson }}{% endfor %}<|im_end|>
{% elif messages[0].role == 'system' %}<|im_start|>system
{{ messages[0].content }}<|im_end|>
{% endif %}
{%- for message in messages if message.role != 'system' %}
{%- if message.role == 'tool' %}<|im_start|>user
<tool_response>
{{ message.content }}
</tool_response><|im_end|>
{% else %}<|im_start|>{{ message.role }}
{{ message.content }}{% for call in message.tool_calls or [] %}{% if message.content or not loop.first %}
{% endif %}<tool_call>
{"name": "{{ call.function.name }}", "arguments": {{ call.function.arguments | tojson }}}
</tool_call>{% endfor %}<|im_end|>
{% endif %}
{%- endfor %}
{%- if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""
"""Qwen, Hermes: calls in tags, results as a user's message. trim_blocks eats the line breaks after tags."""

THINKING = HERMES.replace("<|im_start|>assistant\n{% endif %}", "<|im_start|>assistant\n<think>\n{% endif %}")
"""DeepSeek R1, QwQ: the prompt opens the block."""

MAY_THINK = HERMES + "{# <think> </think> #}"
"""Qwen3: the model opens the block, or does not."""

BARE = """<s>{% for message in messages -%}
<|start|>{{ 'ipython' if message.role == 'tool' else message.role }}<|end|>
{% if loop.first and tools %}Tools:{% for tool in tools %}
{{ tool | tojson }}{% endfor %}

{% endif %}
{%- if message.tool_calls %}
{%- if message.tool_calls | length != 1 %}{{ raise_exception('one call at a time') }}{% endif %}
{%- set call = message.tool_calls[0].function %}{"name": "{{ call.name }}", "parameters": {{ call.arguments | tojson }}}
{%- else %}{{ message.content | trim }}{% endif %}<|im_end|>
{% endfor %}
{%- if add_generation_prompt %}<|start|>assistant<|end|>
{% endif %}"""
"""Llama 3.1: calls are bare JSON, one at a time, with parameters."""

LISTED = """<s>{% set asked = messages | selectattr('role', 'equalto', 'user') | list -%}
{% for message in messages -%}
{% if message.role == 'system' %}{{ raise_exception('no system') }}
{%- elif message.role == 'user' %}
{%- if tools and message == asked[-1] %}[AVAILABLE_TOOLS] {{ tools | tojson }}[/AVAILABLE_TOOLS]{% endif -%}
[INST] {{ message.content }}[/INST]
{%- elif message.role == 'tool' %}[TOOL_RESULTS] {{ message.content }}[/TOOL_RESULTS]
{%- elif message.tool_calls %}[TOOL_CALLS] [
{%- for call in message.tool_calls %}
{%- if call.id | length != 9 %}{{ raise_exception('ids have nine characters') }}{% endif %}
{%- if not loop.first %}, {% endif -%}
{"name": "{{ call.function.name }}", "arguments": {{ call.function.arguments | tojson }}, "id": "{{ call.id }}"}
{%- endfor %}]</s>
{%- else %} {{ message.content }}</s>{% endif %}
{%- endfor %}"""
"""Mistral: tools before the last user message, a list of calls with ids of nine characters; no system role."""

ELEMENTS = HERMES.replace(
    '{"name": "{{ call.function.name }}", "arguments": {{ call.function.arguments | tojson }}}',
    "<function={{ call.function.name }}>{% for key, value in call.function.arguments.items() %}\n"
    "<parameter={{ key }}>\n{{ value }}\n</parameter>{% endfor %}\n\n</function>",
)
"""Qwen3-Coder: an element for each argument."""

TEXT_ARGUMENTS = HERMES.replace("{{ call.function.arguments | tojson }}", "{{ '' + call.function.arguments }}")
"""DeepSeek V3: arguments are text already."""

PLAIN = """{% for message in messages -%}
<|im_start|>{{ message.role }}
{{ message.content }}<|im_end|>
{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""
"""SmolLM2 and all that know no tools."""

ALTERNATING = """<s>{% for message in messages -%}
{% if (message.role == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('roles must alternate') }}{% endif -%}
<start_of_turn>{{ 'model' if message.role == 'assistant' else message.role }}
{{ message.content | trim }}<end_of_turn>
{% endfor %}{% if add_generation_prompt %}<start_of_turn>model
{% endif %}"""
"""Gemma 2: user and model in turns, nothing else."""

"""Makes a tiny model whose replies are known, and serves it by `transformers serve`. Argument: a directory for it.

The model is a Qwen2 of one layer with random weights, but what attention and MLP would add is multiplied by zero, token
embeddings are unit vectors, and the output layer is a table from each token to the next. So a prompt that ends with a
newline, as that of every reply does, is answered with the tokens of `REPLY`, which are whole phrases, in their order.
"""

import itertools
import os
import sys

THOUGHT, TEXT, CODE = "Taps first.", "Trying.", "import torch"
CALL = f'{{"name": "compile_kernel", "arguments": {{"kernel_code": "{CODE}"}}}}'
START, END = "<|im_start|>", "<|im_end|>"
REPLY = ("<think>", THOUGHT, "</think>", TEXT, "<tool_call>", CALL, "</tool_call>", END)
TEMPLATE = (
    "{% for message in messages %}" + START + "{{ message.role }}\n{{ message.content }}"
    "{% for call in message.tool_calls or [] %}<tool_call>{{ call.function | tojson }}</tool_call>{% endfor %}"
    + END
    + "\n{% endfor %}"
    "{% if add_generation_prompt %}" + START + "assistant\n{% endif %}"
)


def make(directory: str) -> None:
    """Write the model and its tokenizer."""
    import torch
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
    from transformers import GenerationConfig, PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM

    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    bare = Tokenizer(models.BPE(vocab={letter: place for place, letter in enumerate(letters)}, merges=[]))
    bare.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bare.decoder = decoders.ByteLevel()
    bare.add_tokens([AddedToken(token, special=False, normalized=False) for token in (START, *REPLY)])
    tokenizer = PreTrainedTokenizerFast(  # type: ignore[no-untyped-call]
        tokenizer_object=bare, eos_token=END, chat_template=TEMPLATE
    )

    count = len(tokenizer)
    config = Qwen2Config(
        vocab_size=count,
        hidden_size=count + count % 2,
        intermediate_size=8,
        num_hidden_layers=1,
        num_attention_heads=1,
        num_key_value_heads=1,
        max_position_embeddings=16384,
        tie_word_embeddings=False,
    )
    model = Qwen2ForCausalLM(config)
    chain = [tokenizer.convert_tokens_to_ids(token) for token in ("Ċ", *REPLY)]
    with torch.no_grad():
        model.model.layers[0].self_attn.o_proj.weight.zero_()
        model.model.layers[0].mlp.down_proj.weight.zero_()
        model.model.embed_tokens.weight.copy_(torch.eye(*model.model.embed_tokens.weight.shape))
        model.lm_head.weight.zero_()
        for token, following in itertools.pairwise(chain):
            model.lm_head.weight[following, token] = 1.0
    model.generation_config = GenerationConfig(  # type: ignore[no-untyped-call]
        eos_token_id=chain[-1], do_sample=False
    )
    model.save_pretrained(directory)
    tokenizer.save_pretrained(directory)


if __name__ == "__main__":
    os.environ["HF_HUB_OFFLINE"] = "1"
    make(sys.argv[1])
    from transformers.cli.transformers import app

    app(["serve", sys.argv[1], "--device", "cpu", "--host", "127.0.0.1", "--port", "0"])

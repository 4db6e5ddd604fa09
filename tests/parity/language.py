"""The numbers of BERT, GPT-2 and recurrent language models: PyTorch's layers and Hugging Face's models with the weights of the formula.

    python tests/parity/language.py FOLDER    writes one file for each model and size, which src/train/models/parity.rs compares with
    python tests/parity/language.py           counts the parameters of the published sizes

Needs torch, transformers and numpy. Nothing is downloaded: every weight comes from the formula.
"""
import sys
from pathlib import Path

import torch
from formula import below, line, values
from torch import nn
from torch.nn.functional import cross_entropy
from transformers import BertConfig, BertForMaskedLM, GPT2Config, GPT2LMHeadModel


class Recurrent(nn.Module):
    def __init__(self, cell, vocabulary, embedded, hidden, layers):
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, embedded)
        stack = {"lstm": nn.LSTM, "gru": nn.GRU}[cell](embedded, hidden, layers, batch_first=True)
        self.add_module(cell, stack)
        self.stack = [stack]
        self.linear = nn.Linear(hidden, vocabulary)

    def forward(self, tokens):
        return self.linear(self.stack[0](self.embedding(tokens))[0])


class Logits(nn.Module):
    """A Hugging Face model whose answer is a tensor."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, tokens):
        return self.model(input_ids=tokens).logits


def bert(**sizes):
    dropout = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    model = BertForMaskedLM(BertConfig(**sizes, **dropout, attn_implementation="eager"))
    # Ours is Google's: the padding token is embedded like any other.
    model.bert.embeddings.word_embeddings.padding_idx = None
    return model


def gpt2(**sizes):
    dropout = {"embd_pdrop": 0.0, "attn_pdrop": 0.0, "resid_pdrop": 0.0}
    return GPT2LMHeadModel(GPT2Config(**sizes, **dropout, attn_implementation="eager"))


TINY_BERT = dict(
    vocab_size=61,
    max_position_embeddings=9,
    hidden_size=24,
    num_hidden_layers=2,
    num_attention_heads=3,
    intermediate_size=40,
)
TINY_GPT2 = dict(vocab_size=61, n_positions=9, n_embd=24, n_layer=2, n_head=3)

# name: (model, vocabulary, rows, tokens of a row)
MODELS = {
    "bert_tiny": (lambda: bert(**TINY_BERT), 61, 3, 7),
    "bert_base": (lambda: bert(), 30522, 2, 16),
    "gpt2_tiny": (lambda: gpt2(**TINY_GPT2), 61, 3, 7),
    "gpt2_small": (lambda: gpt2(), 50257, 2, 16),
    "lstm_tiny": (lambda: Recurrent("lstm", 61, 10, 12, 2), 61, 3, 7),
    "lstm": (lambda: Recurrent("lstm", 10000, 256, 512, 2), 10000, 2, 16),
    "gru_tiny": (lambda: Recurrent("gru", 61, 10, 12, 2), 61, 3, 7),
    "gru": (lambda: Recurrent("gru", 10000, 256, 512, 2), 10000, 2, 16),
}


def transposed(model):
    """Names of the weights that PyTorch keeps as [out, in] and we as [in, out]."""
    names = set()
    for name, module in model.named_modules():
        if isinstance(module, nn.Linear):
            names.add(f"{name}.weight")
        if isinstance(module, nn.RNNBase):
            names.update(f"{name}.{part}" for part, _ in module.named_parameters() if part.startswith("weight"))
    return names


def lines(model, vocabulary, rows, width):
    turned = transposed(model)
    # Tied weights are named once, as embeddings.
    parameters = dict(model.named_parameters())
    with torch.no_grad():
        for name, parameter in parameters.items():
            turn = name in turned
            ours = torch.from_numpy(values(name, tuple(parameter.T.shape if turn else parameter.shape)))
            parameter.copy_(ours.T if turn else ours)
    tokens = below("input", rows * width, vocabulary).reshape(rows, width)
    targets = below("targets", rows * width, vocabulary)
    targets[::3] = -1
    network = model if isinstance(model, Recurrent) else Logits(model)
    answers = network.train()(tokens).reshape(rows * width, vocabulary)
    loss = cross_entropy(answers, targets, ignore_index=-1)
    loss.backward()
    yield f"loss {loss.item()!r}"
    yield line("answers", answers)
    for name, parameter in parameters.items():
        yield line(name, (parameter.grad.T if name in turned else parameter.grad).contiguous())


def main():
    for name, (make, *shape) in MODELS.items():
        model = make()
        count = sum(parameter.numel() for parameter in model.parameters())
        print(name, f"{count:,}")
        if len(sys.argv) > 1:
            text = "\n".join([f"# tests/parity/language.py: {name}, {shape[1]} rows of {shape[2]} tokens", *lines(model, *shape)])
            (Path(sys.argv[1]) / f"{name}.txt").write_text(text + "\n")


if __name__ == "__main__":
    torch.manual_seed(0)
    main()

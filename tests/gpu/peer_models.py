"""The models of models.py in PyTorch, in four modes, on synthetic data that is on the device already. Imported by peers.py and peer_worker.py.

Modes: `eager`; `fast` adds channels-last for convolutional networks, a fused optimiser and cudnn.benchmark; `compile` adds torch.compile of model and loss;
`graphs` compiles with mode="reduce-overhead", which replays CUDA graphs.
"""

import contextlib
import gc

MODES = ("eager", "fast", "compile", "graphs")
PRECISIONS = ("fp32", "bf16")
IMAGES = ("resnet50", "vgg16")
WORDS = ("lstm", "gru", "bert", "gpt2")


class Cell:
    """One configuration, written MODEL:BATCH:PRECISION[:MODE]."""

    def __init__(self, text):
        name, batch, precision, mode = (text.split(":") + ["eager"])[:4] if text.count(":") in (2, 3) else ("", "", "", "")
        if name not in IMAGES + WORDS or not batch.isdigit() or int(batch) < 1 or precision not in PRECISIONS or mode not in MODES:
            raise ValueError(f"`{text}` is no cell (MODEL:BATCH:PRECISION[:MODE] with {', '.join(IMAGES + WORDS)}; {', '.join(PRECISIONS)}; {', '.join(MODES)})")
        self.name, self.batch, self.precision, self.mode = name, int(batch), precision, mode

    def __str__(self):
        return f"{self.name}:{self.batch}:{self.precision}:{self.mode}"


def opened(name):
    """A model, its number of classes, and a function from a batch size and a device to an input."""
    import torch
    import torchvision
    from torch import nn

    class Recurrent(nn.Module):
        def __init__(self, cell):
            super().__init__()
            self.embedding = nn.Embedding(10_000, 256)
            self.layers = cell(256, 512, num_layers=2, batch_first=True)
            self.linear = nn.Linear(512, 10_000)

        def forward(self, tokens):
            return self.linear(self.layers(self.embedding(tokens))[0])

    class Logits(nn.Module):
        def __init__(self, model):
            super().__init__()
            self.model = model

        def forward(self, tokens):
            return self.model(tokens).logits

    images = lambda batch, device: torch.randn(batch, 3, 224, 224, device=device)
    tokens = lambda width, words: lambda batch, device: torch.randint(0, words, (batch, width), device=device)
    if name in IMAGES:
        return getattr(torchvision.models, name)(), 1000, images
    if name in ("lstm", "gru"):
        return Recurrent(nn.LSTM if name == "lstm" else nn.GRU), 10_000, tokens(128, 10_000)
    import transformers

    if name == "bert":
        return Logits(transformers.BertForMaskedLM(transformers.BertConfig())), 30_522, tokens(128, 30_522)
    return Logits(transformers.GPT2LMHeadModel(transformers.GPT2Config())), 50_257, tokens(512, 50_257)


class Work:
    """A cell on a device, its model wrapped by `around`. `step` and `answer` queue their work and do not wait for it."""

    def __init__(self, cell, device="cuda", seed=1, around=lambda model: model):
        import torch
        from torch import nn

        self.torch, self.cell, self.device = torch, cell, torch.device(device)
        self.on_gpu = self.device.type == "cuda"
        torch.manual_seed(seed)
        # TF32, as fp32 is computed by ledger.
        torch.set_float32_matmul_precision("high")
        torch.backends.cudnn.allow_tf32 = True
        torch.backends.cudnn.benchmark = cell.mode != "eager"
        if self.on_gpu:
            torch.cuda.reset_peak_memory_stats()
        model, classes, self.make = opened(cell.name)
        model = model.to(self.device).train()
        self.x = self.make(cell.batch, self.device)
        self.channels_last = cell.mode != "eager" and cell.name in IMAGES
        if self.channels_last:
            model = model.to(memory_format=torch.channels_last)
            self.x = self.x.to(memory_format=torch.channels_last)
        model = around(model)
        images = cell.name in IMAGES
        options = {"fused": True} if cell.mode != "eager" else {}
        rule = torch.optim.SGD(model.parameters(), 0.01, momentum=0.9, **options) if images else torch.optim.AdamW(model.parameters(), 1e-4, **options)
        self.y = torch.empty(cell.batch if images else self.x.numel(), dtype=torch.long, device=self.device)
        self.classes = classes

        def loss_of(x, y):
            with self.cast():
                return nn.functional.cross_entropy(model(x).reshape(-1, classes), y)

        def answer_of(x):
            with self.cast():
                return model(x)

        self.model, self.rule = model, rule
        compiled = {"compile": {}, "graphs": {"mode": "reduce-overhead"}}.get(cell.mode)
        wrap = (lambda function: torch.compile(function, dynamic=False, **compiled)) if compiled is not None else (lambda function: function)
        self.loss_of, self.answer_of = wrap(loss_of), wrap(answer_of)

    def cast(self):
        return self.torch.autocast(self.device.type, self.torch.bfloat16) if self.cell.precision == "bf16" else contextlib.nullcontext()

    def begin(self):
        if self.cell.mode == "graphs":
            self.torch.compiler.cudagraph_mark_step_begin()

    def step(self):
        """Queues a training step. Its loss, on the device; valid until the next step.

        The labels are new in each step: a batch that is learned by heart has gradients near zero, and a GPU draws less power on zeros.
        """
        self.begin()
        self.y.random_(0, self.classes)
        self.rule.zero_grad(set_to_none=True)
        loss = self.loss_of(self.x, self.y)
        loss.backward()
        self.rule.step()
        return loss.detach()

    def ask(self, batch):
        """An input of so many rows, for `answer`. The model evaluates from here on."""
        self.model.eval()
        x = self.make(batch, self.device)
        return x.to(memory_format=self.torch.channels_last) if self.channels_last else x

    def answer(self, x):
        self.begin()
        with self.torch.no_grad():
            self.answer_of(x)

    def wait(self):
        if self.on_gpu:
            self.torch.cuda.synchronize()

    def peak(self):
        """Bytes of PyTorch's allocator at its peak; 0 without a GPU."""
        return self.torch.cuda.max_memory_allocated() if self.on_gpu else 0

    def close(self):
        del self.model, self.rule, self.loss_of, self.answer_of, self.x, self.y
        self.torch._dynamo.reset()
        gc.collect()
        if self.on_gpu:
            self.torch.cuda.empty_cache()

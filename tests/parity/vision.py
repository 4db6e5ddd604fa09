"""Results of the vision models with PyTorch and torchvision, in float64. See src/train/models/parity.rs.

`python vision.py` writes every file that the tests read; `python vision.py NAME…` writes those of these names.
"""

import pathlib
import sys

import torch
from formula import below, images, line, sequence, values
from torch import nn
from torch.nn import functional
from torchvision.models import resnet, vgg


class Narrow(resnet.ResNet):
    """torchvision's residual network with another number of channels, which its constructor fixes."""

    def __init__(self, blocks, base, classes):
        nn.Module.__init__(self)
        self._norm_layer = nn.BatchNorm2d
        self.inplanes, self.dilation, self.groups, self.base_width = base, 1, 1, 64
        self.conv1 = nn.Conv2d(3, base, 7, 2, 3, bias=False)
        self.bn1 = nn.BatchNorm2d(base)
        self.relu = nn.ReLU()
        self.maxpool = nn.MaxPool2d(3, 2, 1)
        for stage, count in enumerate(blocks):
            layer = self._make_layer(resnet.Bottleneck, base << stage, count, 1 if stage == 0 else 2)
            setattr(self, f"layer{stage + 1}", layer)
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Linear(32 * base, classes)


def stacked(convolutions, channels, hidden, classes):
    """torchvision's VGG with another number of convolutions and channels."""
    stages = [[width] * count + ["M"] for count, width in zip(convolutions, channels)]
    model = vgg.VGG(vgg.make_layers(sum(stages, [])), num_classes=1, init_weights=False, dropout=0.0)
    wide = [channels[-1] * 49, hidden, hidden, classes]
    for place, layer in enumerate((0, 3, 6)):
        model.classifier[layer] = nn.Linear(wide[place], wide[place + 1])
    return model


class Tutorial(nn.Module):
    """The network of PyTorch's tutorial on deep Q-learning."""

    def __init__(self):
        super().__init__()
        self.layer1, self.layer2, self.layer3 = nn.Linear(4, 128), nn.Linear(128, 128), nn.Linear(128, 2)

    def forward(self, x):
        return self.layer3(functional.relu(self.layer2(functional.relu(self.layer1(x)))))


class Nature(nn.Module):
    """The network of Mnih et al. 2015."""

    def __init__(self):
        super().__init__()
        convolutions = [nn.Conv2d(4, 32, 8, 4), nn.ReLU(), nn.Conv2d(32, 64, 4, 2), nn.ReLU(), nn.Conv2d(64, 64, 3)]
        rest = [nn.ReLU(), nn.Flatten(), nn.Linear(3136, 512), nn.ReLU(), nn.Linear(512, 4)]
        self.network = nn.Sequential(*convolutions, *rest)

    def forward(self, x):
        return self.network(x)


def states(rows):
    return 2 * torch.from_numpy(sequence("input", rows * 4).reshape(rows, 4))


TINY = ([1, 2, 1, 1], 4, 10)
SMALL = ([1, 2, 1, 1, 1], [8, 8, 16, 16, 16], 32, 10)

# Name: model, input, number of answers, whether it trains.
CASES = {
    "resnet_tiny_train": (lambda: Narrow(*TINY), lambda: images(4, 3, 64), 10, True),
    "resnet_tiny_eval": (lambda: Narrow(*TINY), lambda: images(4, 3, 64), 10, False),
    "resnet50_64_train": (resnet.resnet50, lambda: images(3, 3, 64), 1000, True),
    "resnet50_64_eval": (resnet.resnet50, lambda: images(3, 3, 64), 1000, False),
    "resnet50_224_train": (resnet.resnet50, lambda: images(2, 3, 224), 1000, True),
    "vgg_tiny_32": (lambda: stacked(*SMALL), lambda: images(3, 3, 32), 10, True),
    "vgg_tiny_96": (lambda: stacked(*SMALL), lambda: images(2, 3, 96), 10, True),
    "vgg16_64": (lambda: vgg.vgg16(dropout=0.0), lambda: images(2, 3, 64), 1000, True),
    "vgg16_224": (lambda: vgg.vgg16(dropout=0.0), lambda: images(2, 3, 224), 1000, True),
    "deep_q_state": (Tutorial, lambda: states(6), 2, True),
    "deep_q_frames": (Nature, lambda: images(2, 4, 84), 4, True),
}


def linear_weights(model):
    return {f"{name}.weight" for name, layer in model.named_modules() if isinstance(layer, nn.Linear)}


def lines(model, inputs, classes, trains):
    """What is compared. Linear weights are [in, out] in ours."""
    turned = linear_weights(model)
    state = {name: tensor for name, tensor in model.state_dict().items() if "num_batches" not in name}
    with torch.no_grad():
        for name, tensor in state.items():
            shape = tuple(tensor.shape)
            ours = torch.from_numpy(values(name, shape[::-1] if name in turned else shape))
            tensor.copy_(ours.t() if name in turned else ours)
    model.double().train(trains)
    answers = model(inputs.double())
    loss = functional.cross_entropy(answers, below("targets", len(inputs), classes))
    loss.backward()
    yield f"loss {loss.item()!r}"
    yield line("answers", answers)
    for name, parameter in model.named_parameters():
        yield line(name, parameter.grad.t() if name in turned else parameter.grad)
    for name, buffer in model.named_buffers():
        if "num_batches" not in name:
            yield line(name, buffer)


if __name__ == "__main__":
    for case in sys.argv[1:] or CASES:
        model, inputs, classes, trains = CASES[case]
        text = "".join(f"{one}\n" for one in lines(model(), inputs(), classes, trains))
        pathlib.Path(__file__).with_name(f"{case}.txt").write_text(text)

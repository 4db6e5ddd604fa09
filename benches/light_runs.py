"""What the runs of the benches are drawn from: the splitmix64 generator of `benches/ledger.rs`, and its models."""

MASK = (1 << 64) - 1
MODELS = ["bert", "gpt2", "resnet50", "vit", "llama", "t5", "unet", "whisper"]


class Draw:
    def __init__(self, run, stream):
        self.state = (run + 1) << 16 | stream

    def u64(self):
        self.state = (self.state + 0x9E3779B97F4A7C15) & MASK
        z = ((self.state ^ self.state >> 30) * 0xBF58476D1CE4E5B9) & MASK
        z = ((z ^ z >> 27) * 0x94D049BB133111EB) & MASK
        return z ^ z >> 31

    def unit(self):
        return (self.u64() >> 11) * 2.0**-53

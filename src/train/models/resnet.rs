//! Residual networks of bottlenecks (He et al. 2015, "Deep residual learning for image recognition", table 1).
//!
//! As torchvision has them: a stage that halves the image does so in its first block's 3 x 3 convolution ("v1.5"), where the paper takes the 1 x 1 convolution
//! before it. Names are those of torchvision's `state_dict`.

use super::{Input, Model};
use crate::train::layers::{
    After, Window, batch_norm, convolution_flops, convolution_layout, convolve, linear, max_pool, mean_pixel,
    norm_layouts, norm_statistics,
};
use crate::train::number::wide;
use crate::train::parameters::Layout;
use crate::train::pass::Pass;
use burn::tensor::Tensor;

/// Channels of an image.
const COLOURS: usize = 3;
/// How many times wider a block's answer is than its 3 x 3 convolution.
const EXPANSION: usize = 4;
/// The maxima after the first convolution: 3 x 3.
const HALVE: Window = Window { stride: 2, padding: 1 };

/// A residual network. It answers to images [rows, 3, side, side] with [rows, classes].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Resnet {
    /// Blocks of each of the four stages.
    pub blocks: [usize; 4],
    /// Channels of the first convolution and of the first stage's 3 x 3 convolutions; each further stage has twice as many.
    pub base: usize,
    /// How many different answers there are.
    pub classes: usize,
    /// Rows and columns of an image. [`forward_flops`](Model::forward_flops) alone asks for them.
    pub side: usize,
}

impl Resnet {
    /// ResNet-50 for images of 224 x 224: 25,557,032 parameters with 1,000 classes.
    pub fn fifty(classes: usize) -> Self {
        Self { blocks: [3, 4, 6, 3], base: 64, classes, side: 224 }
    }

    /// The same form with five blocks of a sixteenth of the width, for images of 32 x 32: what a CPU trains in an instant. 35,470 parameters with 10 classes.
    pub fn tiny(classes: usize) -> Self {
        Self { blocks: [1, 2, 1, 1], base: 4, classes, side: 32 }
    }

    fn stem(&self) -> Unit {
        let window = Window { stride: 2, padding: 3 };
        Unit { convolution: "conv1".into(), norm: "bn1".into(), shape: [self.base, COLOURS, 7], window }
    }

    fn bottlenecks(&self) -> Vec<Bottleneck> {
        let mut bottlenecks = Vec::new();
        let (mut from, mut width) = (self.base, self.base);
        for (stage, count) in self.blocks.into_iter().enumerate() {
            for block in 0..count {
                let stride = if stage > 0 && block == 0 { 2 } else { 1 };
                bottlenecks.push(Bottleneck { name: format!("layer{}.{block}", stage + 1), from, width, stride });
                from = width * EXPANSION;
            }
            width *= 2;
        }
        bottlenecks
    }

    fn units(&self) -> Vec<Unit> {
        let mut units = vec![self.stem()];
        for block in self.bottlenecks() {
            units.extend(block.path());
            units.extend(block.shortcut());
        }
        units
    }

    /// Channels that the classes are read from.
    fn features(&self) -> usize {
        self.bottlenecks().last().map_or(self.base, |block| block.width * EXPANSION)
    }
}

impl Model for Resnet {
    fn layouts(&self) -> Vec<Layout> {
        let mut layouts = Vec::new();
        for unit in self.units() {
            layouts.push(convolution_layout(&unit.convolution, unit.shape));
            layouts.extend(norm_layouts(&unit.norm, unit.shape[0]));
        }
        layouts.extend(Layout::pair("fc", &[self.features(), self.classes], self.classes));
        layouts
    }

    fn statistics(&self) -> Vec<Layout> {
        self.units().iter().flat_map(|unit| norm_statistics(&unit.norm, unit.shape[0])).collect()
    }

    fn answer(&self, pass: &mut Pass<'_>, input: Input) -> Tensor<2> {
        let Input::Images(images) = input else { panic!("a residual network answers to images") };
        let x = self.stem().apply(pass, images, After::relu());
        let x = self.bottlenecks().iter().fold(max_pool(pass, x, 3, HALVE), |x, block| block.apply(pass, x));
        linear(pass, "fc", mean_pixel(x))
    }

    fn classes(&self) -> usize {
        self.classes
    }

    fn forward_flops(&self, _width: usize) -> u64 {
        let (stem, mut image) = self.stem().flops(self.side);
        image = HALVE.places(3, image);
        let mut flops = stem + 2 * wide(self.features() * self.classes);
        for block in self.bottlenecks() {
            flops += block.shortcut().map_or(0, |unit| unit.flops(image).0);
            for unit in block.path() {
                let (own, next) = unit.flops(image);
                (flops, image) = (flops + own, next);
            }
        }
        flops
    }
}

/// A convolution without a bias, and its batch normalisation with what follows.
struct Unit {
    convolution: String,
    norm: String,
    /// Channels out, channels in, side of the kernel.
    shape: [usize; 3],
    window: Window,
}

impl Unit {
    fn apply(&self, pass: &mut Pass<'_>, x: Tensor<4>, after: After) -> Tensor<4> {
        let x = convolve(pass, &self.convolution, x, self.window);
        batch_norm(pass, &self.norm, x, after)
    }

    /// Operations for an image of this side, and the side of its answer.
    fn flops(&self, image: usize) -> (u64, usize) {
        let places = self.window.places(self.shape[2], image);
        (convolution_flops(self.shape, places), places)
    }
}

/// Fewer channels, a 3 x 3 convolution among them, more channels; and around them the input itself (figure 5 of the paper, right).
struct Bottleneck {
    name: String,
    from: usize,
    width: usize,
    stride: usize,
}

impl Bottleneck {
    fn path(&self) -> [Unit; 3] {
        let Self { name, from, width, stride } = self;
        let unit = |number: usize, shape: [usize; 3], stride: usize| Unit {
            convolution: format!("{name}.conv{number}"),
            norm: format!("{name}.bn{number}"),
            shape,
            window: Window { stride, padding: shape[2] / 2 },
        };
        [
            unit(1, [*width, *from, 1], 1),
            unit(2, [*width, *width, 3], *stride),
            unit(3, [width * EXPANSION, *width, 1], 1),
        ]
    }

    /// A projection where input and answer differ in their shapes (option B of the paper).
    fn shortcut(&self) -> Option<Unit> {
        let Self { name, from, width, stride } = self;
        let to = width * EXPANSION;
        (*stride != 1 || *from != to).then(|| Unit {
            convolution: format!("{name}.downsample.0"),
            norm: format!("{name}.downsample.1"),
            shape: [to, *from, 1],
            window: Window { stride: *stride, padding: 0 },
        })
    }

    fn apply(&self, pass: &mut Pass<'_>, x: Tensor<4>) -> Tensor<4> {
        let [narrow, middle, widen] = self.path();
        let y = narrow.apply(pass, x.clone(), After::relu());
        let y = middle.apply(pass, y, After::relu());
        let x = match self.shortcut() {
            Some(projection) => projection.apply(pass, x, After::default()),
            None => x,
        };
        widen.apply(pass, y, After { residual: Some(x), relu: true })
    }
}

#[cfg(test)]
mod tests;

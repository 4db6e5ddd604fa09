//! The order of an image's axes in memory.

use super::{primitive, tensor};
use burn::tensor::Tensor;
use burn_cubecl::kernel::into_contiguous;

/// How images `[count, channels, height, width]` lie. Windows `[channels out, channels in, height, width]` lie likewise.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Storage {
    /// The columns innermost: Burn's order.
    Nchw,
    /// The channels innermost: the order of tensor cores, PyTorch's `channels_last`.
    Nhwc,
}

impl Storage {
    /// The storage of images on a GPU. It is NHWC where the strides say so and NCHW in all other cases.
    pub fn of(images: &Tensor<4>) -> Self {
        let [_, channels, height, width] = images.dims();
        let nhwc = [height * width * channels, 1, width * channels, channels];
        let strides = primitive(images).map(|images| images.meta.strides().to_vec());
        // Images of one channel or one pixel lie in both orders.
        let both = channels == 1 || height * width == 1;
        if !both && strides.is_some_and(|strides| strides == nhwc) { Self::Nhwc } else { Self::Nchw }
    }

    /// The same images in this storage, copied where they lie otherwise. None for images that are not on a GPU.
    pub fn laid(self, images: Tensor<4>) -> Option<Tensor<4>> {
        let dims @ [_, channels, height, width] = images.dims();
        // Both orders are the same, which Burn does not see: it would copy.
        let lying =
            if channels == 1 || height * width == 1 { images.reshape(self.shape(dims)) } else { self.lying(images) };
        Some(self.named(tensor(into_contiguous(primitive(&lying)?))))
    }

    /// The images with their axes in the order in which they lie.
    pub fn lying(self, images: Tensor<4>) -> Tensor<4> {
        match self {
            Self::Nchw => images,
            Self::Nhwc => images.permute([0, 2, 3, 1]),
        }
    }

    /// `[count, channels, height, width]` again, from what [`lying`](Self::lying) gives.
    pub fn named(self, lying: Tensor<4>) -> Tensor<4> {
        match self {
            Self::Nchw => lying,
            Self::Nhwc => lying.permute([0, 3, 1, 2]),
        }
    }

    /// The shape of what [`lying`](Self::lying) gives.
    pub fn shape(self, [count, channels, height, width]: [usize; 4]) -> [usize; 4] {
        match self {
            Self::Nchw => [count, channels, height, width],
            Self::Nhwc => [count, height, width, channels],
        }
    }

    /// Values from one index to the next along each axis of images of this shape.
    pub fn strides(self, [_, channels, height, width]: [i64; 4]) -> [i64; 4] {
        match self {
            Self::Nchw => [channels * height * width, height * width, width, 1],
            Self::Nhwc => [height * width * channels, 1, width * channels, channels],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use burn::tensor::Device;

    #[test]
    fn axes_come_back_in_their_order() {
        let shape = [2, 3, 4, 5];
        for storage in [Storage::Nchw, Storage::Nhwc] {
            let images = Tensor::<4>::zeros(shape, &Device::flex());
            let lying = storage.lying(images);
            assert_eq!(lying.dims(), storage.shape(shape));
            assert_eq!(storage.named(lying).dims(), shape);
        }
        assert_eq!(Storage::Nchw.strides([2, 3, 4, 5]), [60, 20, 5, 1]);
        assert_eq!(Storage::Nhwc.strides([2, 3, 4, 5]), [60, 1, 15, 3]);
    }

    #[test]
    fn images_of_the_host_stay_as_they_are() {
        let images = Tensor::<4>::zeros([2, 3, 4, 5], &Device::flex());
        assert_eq!(Storage::of(&images), Storage::Nchw);
        assert!(Storage::Nhwc.laid(images).is_none());
    }
}

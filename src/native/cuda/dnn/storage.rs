//! The order of an image's axes in memory.

use super::{primitive, tensor};
use burn::tensor::Tensor;
use burn_cubecl::kernel::into_contiguous;

/// The memory layout of images `[count, channels, height, width]`, and of weights `[channels out, channels in, height,
/// width]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Storage {
    /// Columns innermost: Burn's order.
    Nchw,
    /// Channels innermost: the order of tensor cores, PyTorch's `channels_last`.
    Nhwc,
}

impl Storage {
    /// Returns the storage of images on a GPU: NHWC if their strides say so, otherwise NCHW.
    pub fn of(images: &Tensor<4>) -> Self {
        let [_, channels, height, width] = images.dims();
        let nhwc = [height * width * channels, 1, width * channels, channels];
        let strides = primitive(images).map(|images| images.meta.strides().to_vec());
        // For one channel or one pixel both orders are the same.
        let both = channels == 1 || height * width == 1;
        if !both && strides.is_some_and(|strides| strides == nhwc) { Self::Nhwc } else { Self::Nchw }
    }

    /// Returns the images in this storage, copied if necessary. `None` for images that are not on a GPU.
    pub fn laid(self, images: Tensor<4>) -> Option<Tensor<4>> {
        let dims @ [_, channels, height, width] = images.dims();
        // Both orders are the same here, but Burn would copy.
        let lying =
            if channels == 1 || height * width == 1 { images.reshape(self.shape(dims)) } else { self.lying(images) };
        Some(self.named(tensor(into_contiguous(primitive(&lying)?))))
    }

    /// Permutes the axes of images into their memory order.
    pub fn lying(self, images: Tensor<4>) -> Tensor<4> {
        match self {
            Self::Nchw => images,
            Self::Nhwc => images.permute([0, 2, 3, 1]),
        }
    }

    /// Restores the order `[count, channels, height, width]` of a tensor from [`lying`](Self::lying).
    pub fn named(self, lying: Tensor<4>) -> Tensor<4> {
        match self {
            Self::Nchw => lying,
            Self::Nhwc => lying.permute([0, 3, 1, 2]),
        }
    }

    /// Returns the shape of the tensor from [`lying`](Self::lying).
    pub fn shape(self, [count, channels, height, width]: [usize; 4]) -> [usize; 4] {
        match self {
            Self::Nchw => [count, channels, height, width],
            Self::Nhwc => [count, height, width, channels],
        }
    }

    /// Returns the strides of images of this shape, in values.
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
    fn axes_are_restored_to_their_order() {
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
    fn host_images_are_nchw_and_cannot_be_converted() {
        let images = Tensor::<4>::zeros([2, 3, 4, 5], &Device::flex());
        assert_eq!(Storage::of(&images), Storage::Nchw);
        assert!(Storage::Nhwc.laid(images).is_none());
    }
}

//! Sums of gradients, some of them still pending, so that work on the first sums need not wait for the last.

use burn::tensor::Tensor;
use std::ops::Range;

/// The sums of all gradients, in parts that arrive one after the other.
#[must_use]
pub struct Sums(Vec<Part>);

/// Sums that arrive together.
pub struct Part {
    tensors: Range<usize>,
    take: Box<dyn FnOnce() -> Vec<Tensor<1>>>,
}

impl Part {
    /// The sums of a range of all tensors. A device that takes them runs all later work behind them.
    pub fn new(tensors: Range<usize>, take: impl FnOnce() -> Vec<Tensor<1>> + 'static) -> Self {
        Self { tensors, take: Box::new(take) }
    }
}

impl Sums {
    /// Sums that are complete already.
    pub fn of(tensors: Vec<Tensor<1>>) -> Self {
        Self(vec![Part::new(0..tensors.len(), move || tensors)])
    }

    /// Sums that arrive in these parts. Each tensor is in one part, and all parts must be taken.
    pub fn new(parts: Vec<Part>) -> Self {
        Self(parts)
    }

    /// Returns each part when it is requested: the range of tensors, and their sums.
    pub fn parts(self) -> impl Iterator<Item = (Range<usize>, Vec<Tensor<1>>)> {
        self.0.into_iter().map(|part| (part.tensors, (part.take)()))
    }

    /// Returns the sums of all tensors in order.
    pub fn all(self) -> Vec<Tensor<1>> {
        let mut parts: Vec<_> = self.parts().collect();
        parts.sort_by_key(|(tensors, _)| tensors.start);
        parts.into_iter().flat_map(|(_, sums)| sums).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use burn::tensor::Device;
    use std::cell::RefCell;
    use std::rc::Rc;

    fn tensors(values: &[f32]) -> Vec<Tensor<1>> {
        values.iter().map(|value| Tensor::from_data([*value], &Device::flex())).collect()
    }

    fn values(tensors: Vec<Tensor<1>>) -> Vec<f32> {
        tensors.into_iter().map(|tensor| tensor.try_into_scalar::<f32>().expect("readable")).collect()
    }

    #[test]
    fn parts_are_taken_on_request_and_all_are_in_the_order_of_tensors() {
        let taken = Rc::new(RefCell::new(Vec::new()));
        let part = |tensors_of: Range<usize>, given: &'static [f32]| {
            let taken = Rc::clone(&taken);
            Part::new(tensors_of.clone(), move || {
                taken.borrow_mut().push(tensors_of.start);
                tensors(given)
            })
        };
        let sums = || Sums::new(vec![part(2..3, &[3.0]), part(0..2, &[1.0, 2.0])]);
        let mut parts = sums().parts();
        assert_eq!(*taken.borrow(), [0; 0]);
        let (first, given) = parts.next().expect("two");
        assert_eq!((first, values(given), taken.borrow().clone()), (2..3, vec![3.0], vec![2]));
        drop(parts);
        assert_eq!(values(sums().all()), [1.0, 2.0, 3.0]);
        let there: Vec<_> = Sums::of(tensors(&[4.0, 5.0])).parts().map(|(of, given)| (of, values(given))).collect();
        assert_eq!(there, [(0..2, vec![4.0, 5.0])]);
    }
}

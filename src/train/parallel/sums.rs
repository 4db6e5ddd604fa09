//! Sums of gradients of which some are on their way, so that what is done with the first of them need not wait for the last.

use burn::tensor::Tensor;
use std::ops::Range;

/// The sums of all gradients, in parts that come one behind the other.
#[must_use]
pub struct Sums(Vec<Part>);

/// Sums that come together.
pub struct Part {
    tensors: Range<usize>,
    take: Box<dyn FnOnce() -> Vec<Tensor<1>>>,
}

impl Part {
    /// Those of these of all tensors. A device that is asked for them works on everything else behind them.
    pub fn new(tensors: Range<usize>, take: impl FnOnce() -> Vec<Tensor<1>> + 'static) -> Self {
        Self { tensors, take: Box::new(take) }
    }
}

impl Sums {
    /// What is there already.
    pub fn of(tensors: Vec<Tensor<1>>) -> Self {
        Self(vec![Part::new(0..tensors.len(), move || tensors)])
    }

    /// What comes in these parts, in which each tensor is once. All of them are to be taken.
    pub fn new(parts: Vec<Part>) -> Self {
        Self(parts)
    }

    /// Each part when it is asked for: which of all tensors, and their sums.
    pub fn parts(self) -> impl Iterator<Item = (Range<usize>, Vec<Tensor<1>>)> {
        self.0.into_iter().map(|part| (part.tensors, (part.take)()))
    }

    /// The sums of all tensors in their order.
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
    fn parts_are_taken_when_they_are_asked_for_and_all_is_in_the_order_of_tensors() {
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

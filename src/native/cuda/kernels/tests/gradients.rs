//! Sums of squares and factors against plain loops.

use super::*;

/// Returns more gradients than a launch can take, with lengths below, at and above a block's.
fn gradients() -> Vec<Tensor<1>> {
    let length = |n: usize| [1, 3, 4, 255, 1024, 16_383, 16_384, 16_385, 40_000, 100_003][n % 10] + n / 10;
    (0..310).map(|n| random([length(n)])).collect()
}

fn squares(gradients: &[Tensor<1>]) -> f64 {
    let of = |gradient: &Tensor<1>| read(gradient.clone()).iter().map(|value| f64::from(*value).powi(2)).sum::<f64>();
    gradients.iter().map(of).sum()
}

fn on_card(gradients: &[Tensor<1>]) -> Vec<Tensor<1>> {
    gradients.iter().map(|gradient| moved(gradient, &card())).collect()
}

#[test]
#[ignore = "needs a GPU"]
fn sums_of_squares_on_gpu() {
    let gradients = gradients();
    let [first, second] = [(); 2].map(|()| read(square_sum(&on_card(&gradients)).expect("on a card"))[0]);
    assert_eq!(first.to_bits(), second.to_bits());
    let expected = squares(&gradients);
    assert!((f64::from(first) - expected).abs() <= 1e-7 * expected, "{first} and not {expected}");
    for bad in [f32::NAN, f32::INFINITY] {
        let mut gradients = on_card(&gradients);
        gradients[173] = Tensor::from_data([1.0, bad, 2.0], &card());
        assert!(!read(square_sum(&gradients).expect("on a card"))[0].is_finite(), "{bad}");
    }
    assert_eq!(fault(), None);
}

#[test]
#[ignore = "needs a GPU"]
fn factors_for_all_on_gpu() {
    let gradients = gradients();
    let long = squares(&gradients).sqrt();
    let sum = square_sum(&on_card(&gradients)).expect("on a card");
    let norm = |share: f64| Factor::Norm(&sum, single(long * share));
    for (factor, by) in [(Factor::Given(0.5), 0.5), (norm(0.25), 0.25), (norm(2.0), 1.0)] {
        for held in [false, true] {
            let given = on_card(&gradients);
            let keep = held.then(|| given.clone());
            let Some(multiply) = multiplied(&given, factor) else { panic!("refused") };
            for (place, (made, gradient)) in multiply(given).into_iter().zip(&gradients).enumerate() {
                near(made, gradient.clone() * by, 1e-6, &format!("{place} times {by}, held {held}"));
            }
            for (kept, gradient) in keep.into_iter().flatten().zip(&gradients) {
                assert!(read(kept) == read(gradient.clone()), "a gradient that was held has changed");
            }
        }
    }
}

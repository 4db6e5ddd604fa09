use super::*;
use crate::precision::Precision;
use burn::tensor::{Device, TensorData};

const HEAD: BoxHead = BoxHead { channels: 1, hidden: 1, classes: 4 };

fn with<T>(work: impl FnOnce(&ForwardContext<'_>) -> T) -> T {
    work(&ForwardContext::without_parameters(Precision::Fp32, &Device::flex()))
}

fn numbers(len: usize, by: usize) -> Vec<f32> {
    (0..len).map(|n| f32::from(u8::try_from(n * by % 101).expect("small")) / 25.0 - 2.0).collect()
}

#[test]
fn unused_slots_do_not_change_the_losses() {
    let slot = |class, deltas| Slot { class, deltas, ..Slot::default() };
    let used = vec![slot(2, Some([0.5, -1.0, 0.0, 0.3])), slot(0, None)];
    let of = |unused: usize| {
        let slots = [used.clone(), vec![slot(-1, None); unused]];
        with(|ctx| {
            let tensor = |columns: usize, by: usize| {
                let (rows, values) = (2 + unused, numbers((2 + unused) * columns, by));
                ctx.constant(Tensor::<2>::from_data(TensorData::new(values, [rows, columns]), &Device::flex()))
            };
            let losses = HEAD.losses(ctx, [tensor(4, 37), tensor(16, 53)], &slots);
            losses.map(|loss| loss.inner().try_into_scalar::<f32>().expect("readable"))
        })
    };
    for (without, with) in of(0).into_iter().zip(of(3)) {
        assert!(without > 0.1 && (without - with).abs() < 1e-6, "{with}, not {without}");
    }
}

#[test]
fn each_class_is_detected_with_its_own_box() {
    let proposals =
        [Xyxy::new([0.0, 0.0, 20.0, 20.0]), Xyxy::new([1.0, 0.0, 21.0, 20.0]), Xyxy::new([40.0, 40.0, 50.0, 50.0])];
    let mut judged = vec![0.0; 3 * 20];
    // The first proposal scores 0.6 for class 1 and 0.15 for class 3, whose box is shifted by a whole width. The second
    // duplicates the first. The third is background.
    judged[..4].copy_from_slice(&[0.2, 0.6, 0.05, 0.15]);
    judged[4 + 3 * 4] = 10.0;
    judged[20..24].copy_from_slice(&[0.4, 0.5, 0.05, 0.05]);
    judged[40..44].copy_from_slice(&[0.97, 0.01, 0.01, 0.01]);
    let found = HEAD.found(&judged, &proposals, 64, 10);
    let told: Vec<(usize, f32, [f32; 4])> =
        found.iter().map(|one| (one.class, one.score, one.region.array())).collect();
    assert_eq!(told, [(1, 0.6, [0.0, 0.0, 20.0, 20.0]), (3, 0.15, [20.0, 0.0, 40.0, 20.0])]);
    assert_eq!(HEAD.found(&judged, &proposals, 64, 1).len(), 1);
    // Slots without a proposal are ignored.
    assert_eq!(HEAD.found(&judged, &proposals[..0], 64, 10).len(), 0);
}

#[test]
fn classes_become_one_hot_rows() {
    let found: Vec<f32> = with(|ctx| chosen(ctx, &[2, -1, 0], 3).try_into_vec_as().expect("readable"));
    assert_eq!(found, [0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0]);
}
